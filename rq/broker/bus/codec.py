"""Messages between nodes as bytes: a byte for the kind, and its fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from rq.broker.bus.fields import (
    DATA,
    FIGURES,
    FLAG,
    HOST,
    JOB,
    NODE,
    NODES,
    NUMBER,
    PORT,
    SECONDS,
    Field,
    Figures,
    Reader,
    many,
    record,
)
from rq.broker.bus.frames import BadFrame
from rq.broker.cluster import messages
from rq.broker.cluster.gossip import (
    Address,
    Forget,
    Gossip,
    Greeting,
    HasFailed,
    Kind,
    Rumour,
)
from rq.broker.cluster.messages import Copy, Message

Sent = Message | Gossip
_MOST_COPIES = 10_000  # jobs in one message
_MOST_RUMOURS = 1000


def _fields(*fields: object) -> tuple[Field[object], ...]:
    """Return fields of different types as those of a record."""
    return cast("tuple[Field[object], ...]", fields)


def _read_kind(reader: Reader) -> Kind:
    number = reader.take(1)[0]
    if number not in set(Kind):
        raise BadFrame(f"a greeting of kind {number}")
    return Kind(number)


_KIND = Field[Kind](lambda kind: bytes([kind]), _read_kind)
_ADDRESS = record(Address, _fields(HOST, PORT, PORT))
_RUMOUR = record(Rumour, _fields(NODE, _ADDRESS, FLAG, FLAG))


def _write_copy(copy: Copy) -> bytes:
    job, queue, body, *figures, nodes, moves = copy
    return b"".join(
        (
            JOB.write(job),
            DATA.write(queue),
            DATA.write(body),
            FIGURES.write(cast("Figures", tuple(figures))),
            NODES.write(nodes),
            NUMBER.write(moves),
        )
    )


def _read_copy(reader: Reader) -> Copy:
    job, queue, body = JOB.read(reader), DATA.read(reader), DATA.read(reader)
    figures = FIGURES.read(reader)
    return Copy(job, queue, body, *figures, NODES.read(reader), NUMBER.read(reader))


_COPY = Field[Copy](_write_copy, _read_copy)
_GREETING = _fields(
    _KIND, PORT, PORT, FLAG, many(_RUMOUR, _MOST_RUMOURS), NUMBER, NUMBER
)
# Numbers on the wire: never given to another kind.
_KINDS: Mapping[int, tuple[type[Sent], tuple[Field[object], ...]]] = {
    1: (messages.Replicate, _fields(_COPY, FLAG)),
    2: (messages.Kept, _fields(JOB)),
    3: (messages.Enqueue, _fields(JOB, SECONDS)),
    4: (messages.WillQueue, _fields(JOB)),
    5: (messages.IsQueued, _fields(JOB, NUMBER, NUMBER)),
    6: (messages.Working, _fields(JOB)),
    7: (messages.SetAck, _fields(JOB, NODES)),
    8: (messages.GotAck, _fields(JOB, FLAG)),
    9: (messages.Delete, _fields(JOB)),
    10: (messages.Need, _fields(DATA, NUMBER)),
    11: (messages.Yours, _fields(many(_COPY, _MOST_COPIES))),
    12: (messages.Pause, _fields(DATA, FLAG, FLAG)),
    13: (messages.Mark, _fields()),
    20: (Greeting, _GREETING),
    21: (HasFailed, _fields(NODE)),
    22: (Forget, _fields(NODE, FLAG)),
}
_BY_NUMBER: Mapping[int, Field[Sent]] = {
    number: record(cast("Callable[..., Sent]", kind), fields)
    for number, (kind, fields) in _KINDS.items()
}
_NUMBER_OF = {kind: number for number, (kind, _) in _KINDS.items()}


def encode(message: Sent) -> bytes:
    """Return a message as bytes."""
    number = _NUMBER_OF[type(message)]
    return bytes([number]) + _BY_NUMBER[number].write(message)


def decode(data: bytes) -> Sent:
    """Return the message in bytes; BadFrame: there is none, or more than that."""
    reader = Reader(data)
    number = reader.take(1)[0]
    field = _BY_NUMBER.get(number)
    if field is None:
        raise BadFrame(f"a message of kind {number}")
    message = field.read(reader)
    reader.end()
    return message
