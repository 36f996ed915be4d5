"""Messages between nodes as bytes: a byte for the kind, and its fields. Pure.

Each field is checked when it is read: no number is outside its bounds, no name has
another form than its own.
"""

from __future__ import annotations

import functools
import ipaddress
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast

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
from rq.broker.state import ids
from rq.broker.state.bounds import MOST_NUMBER
from rq.resp import BULK_LIMIT

Sent = Message | Gossip
_MOST_COPIES = 10_000  # jobs in one message
_MOST_RUMOURS = 1000
_NODE = 20  # bytes of an id
_JOB = 40
_LONG = 1e12  # seconds: longer than anything may be asked to take
_MOST_NODES = 10_000
_NUMBER = struct.Struct("!q")
_SECONDS = struct.Struct("!d")
_SIZE = struct.Struct("!I")
_FIGURES = struct.Struct("!qdddqqq")
Figures = tuple[int, float, float, float, int, int, int]
T = TypeVar("T")


class Reader:
    """Takes a message apart."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; BadFrame: there are fewer."""
        end = self._at + size
        if end > len(self._data):
            raise BadFrame("a message that is cut off")
        data = self._data[self._at : end]
        self._at = end
        return data

    def end(self) -> None:
        """BadFrame: something is left."""
        if self._at != len(self._data):
            raise BadFrame("a message with something behind it")


class Field(Generic[T]):
    """How a value is written and read."""

    def __init__(
        self, write: Callable[[T], bytes], read: Callable[[Reader], T]
    ) -> None:
        self.write = write
        self.read = read


def _size(reader: Reader, most: int) -> int:
    size = int(_SIZE.unpack(reader.take(_SIZE.size))[0])
    if size > most:
        raise BadFrame(f"{size} of what may be {most}")
    return size


def _read_node(reader: Reader) -> str:
    return reader.take(_NODE).hex()


def _read_job(reader: Reader) -> str:
    data = reader.take(_JOB)
    job_id = ids.parsed(data)
    if job_id is None or not data.isascii():
        raise BadFrame("an id that no job has")
    return job_id


def _read_number(reader: Reader) -> int:
    number = int(_NUMBER.unpack(reader.take(_NUMBER.size))[0])
    if not 0 <= number <= MOST_NUMBER:
        raise BadFrame("a number out of bounds")
    return number


def _read_seconds(reader: Reader) -> float:
    seconds = float(_SECONDS.unpack(reader.take(_SECONDS.size))[0])
    if not math.isfinite(seconds) or not 0 <= seconds <= _LONG:
        raise BadFrame("seconds out of bounds")
    return seconds


def _read_flag(reader: Reader) -> bool:
    flag = reader.take(1)
    if flag not in (b"\0", b"\1"):
        raise BadFrame("a flag that is neither set nor not")
    return flag == b"\1"


def _read_data(reader: Reader) -> bytes:
    return reader.take(_size(reader, BULK_LIMIT))


def _write_data(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def _read_port(reader: Reader) -> int:
    return int.from_bytes(reader.take(2), "big")


def _read_host(reader: Reader) -> str:
    data = reader.take(reader.take(1)[0])
    try:
        return str(ipaddress.ip_address(data.decode("ascii"))) if data else ""
    except ValueError:
        raise BadFrame("a host that is no address") from None


def _write_host(host: str) -> bytes:
    data = host.encode("ascii")
    return bytes([len(data)]) + data


def _write_figures(figures: Figures) -> bytes:
    ctime, ttl, delay, *others = figures
    return _FIGURES.pack(ctime, max(0.0, ttl), max(0.0, delay), *others)


def _read_figures(reader: Reader) -> Figures:
    figures = cast("Figures", _FIGURES.unpack(reader.take(_FIGURES.size)))
    ctime, ttl, delay, retry, wanted, nacks, deliveries = figures
    numbers = ctime, wanted, nacks, deliveries
    if min(numbers) < 0 or max(numbers) > MOST_NUMBER:
        raise BadFrame("a number out of bounds")
    if not (0 <= ttl <= _LONG and 0 <= delay <= _LONG and 0 <= retry <= _LONG):
        raise BadFrame("seconds out of bounds")
    return figures


NODE = Field[str](bytes.fromhex, _read_node)
JOB = Field[str](str.encode, _read_job)
NUMBER = Field[int](_NUMBER.pack, _read_number)
# What is left of a time may be over.
SECONDS = Field[float](lambda left: _SECONDS.pack(max(0.0, left)), _read_seconds)
# A number, three times of seconds and three numbers, in one go: each job that travels has
# them.
FIGURES = Field[Figures](_write_figures, _read_figures)
FLAG = Field[bool](lambda flag: b"\1" if flag else b"\0", _read_flag)
DATA = Field[bytes](_write_data, _read_data)
PORT = Field[int](lambda port: port.to_bytes(2, "big"), _read_port)
HOST = Field[str](_write_host, _read_host)


def many(field: Field[T], most: int = _MOST_NODES) -> Field[tuple[T, ...]]:
    """Return the field of any number of values, up to `most`."""

    def write(values: tuple[T, ...]) -> bytes:
        return _SIZE.pack(len(values)) + b"".join(map(field.write, values))

    def read(reader: Reader) -> tuple[T, ...]:
        return tuple(field.read(reader) for _ in range(_size(reader, most)))

    return Field(write, read)


@functools.lru_cache(maxsize=1000)
def _write_nodes(nodes: tuple[str, ...]) -> bytes:
    return _SIZE.pack(len(nodes)) + b"".join(map(bytes.fromhex, nodes))


@functools.lru_cache(maxsize=1000)
def _nodes_in(data: bytes) -> tuple[str, ...]:
    text, digits = data.hex(), 2 * _NODE
    return tuple(text[at : at + digits] for at in range(0, len(text), digits))


def _read_nodes(reader: Reader) -> tuple[str, ...]:
    return _nodes_in(reader.take(_NODE * _size(reader, _MOST_NODES)))


# Each job that travels names some, and nearly all name the same.
NODES = Field[tuple[str, ...]](_write_nodes, _read_nodes)


def record(make: Callable[..., T], fields: Sequence[Field[object]]) -> Field[T]:
    """Return the field of a named tuple, from those of its values in their order."""

    def write(values: T) -> bytes:
        pairs = zip(fields, cast("tuple[object, ...]", values), strict=True)
        return b"".join(field.write(value) for field, value in pairs)

    def read(reader: Reader) -> T:
        return make(*(field.read(reader) for field in fields))

    return Field(write, read)


# ---- messages


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
