"""What the broker tells of itself, as values. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rq import names
from rq.errors import BadInput
from rq.resp import Status, Value
from rq.rpc.broker.addresses import address_of, readable
from rq.rpc.broker.rows import (
    ClientRow,
    CopyRow,
    HeldRow,
    Job,
    JobRow,
    Minutes,
    NodeRow,
    QueueRow,
    ToldRow,
)

# What is said of a copy by the state of its job: of one that is not confirmed, and of one
# that is.
_COPY = "was sent a copy", "here"
_COPY_OF = {
    "wait-repl": ("was sent a copy", "has it"),
    "acked": ("to be told that it is done", "knows that it is done"),
}


def queues_in(answer: Value) -> list[QueueRow]:
    """Return the queues of an answer to QUEUES, by name."""
    return [_queue(row) for row in _by_name(answer)]


def _by_name(answer: Value) -> list[Sequence[Value]]:
    return sorted(_lists(answer), key=lambda row: (text_in(row[1]), text_in(row[0])))


def _queue(row: Sequence[Value]) -> QueueRow:
    waits, handed_out, consumers, came, went = map(number_in, row[2:7])
    return QueueRow(
        dialect=text_in(row[0]),
        name=text_in(row[1]),
        waits=waits,
        handed_out=handed_out,
        consumers=consumers,
        came=came,
        went=went,
        paused=text_in(row[7]),
        oldest=number_in(row[8]),
        in_rate=float(text_in(row[9])),
        out_rate=float(text_in(row[10])),
        address=address_of(_data(row[1])),
    )


def minutes_in(answer: Value) -> list[Minutes]:
    """Return the minutes of the queues in an answer to QUEUE, as `queues_in` has them."""
    return [
        Minutes(*(list(map(number_in, _list(each))) for each in row[11:14]))
        for row in _by_name(answer)
    ]


def clients_in(answer: Value) -> list[ClientRow]:
    """Return the clients of an answer to CLIENTS, whoever came first."""
    return [
        ClientRow(
            number_in(row[0]),
            text_in(row[1]),
            text_in(row[2]),
            number_in(row[3]),
            bool(row[4]),
            text_in(row[5]),
        )
        for row in _lists(answer)
    ]


def nodes_in(answer: Value) -> list[NodeRow]:
    """Return the nodes of an answer to NODES, the one that answers first."""
    return [_node(row) for row in _lists(answer)]


def _node(row: Sequence[Value]) -> NodeRow:
    linked, silent, lag, waiting, lost, bus_port, back = map(number_in, row[4:11])
    host = text_in(row[1])
    return NodeRow(
        id=text_in(row[0]),
        address=names.host_port(host, number_in(row[2])),
        flags=list(map(text_in, _list(row[3]))),
        linked=bool(linked),
        silent=silent / 1000 if silent >= 0 else -1,
        lag=lag / 1e6 if lag >= 0 else -1,
        waiting_bytes=waiting,
        lost=lost,
        bus=names.host_port(host, bus_port),
        linked_back=bool(back),
        why=text_in(row[11]),
    )


def held_in(answer: Value) -> tuple[HeldRow, list[HeldRow]]:
    """Return the sum and the queues of an answer to HELD."""
    rows = [
        HeldRow(text_in(row[0]), text_in(row[1]), *map(number_in, row[2:6]))
        for row in _lists(answer)
    ]
    return rows[0], rows[1:]


def told_in(answer: Value) -> list[ToldRow]:
    """Return the other nodes of an answer to FORGET."""
    return [
        ToldRow(text_in(row[0]), text_in(row[1]), bool(row[2]))
        for row in _lists(answer)
    ]


def jobs_in(answer: Value) -> list[JobRow]:
    """Return the jobs of an answer to PEEK."""
    return [
        JobRow(
            id=text_in(row[0]),
            body=text_in(row[1]),
            body_bytes=number_in(row[2]),
            seconds=number_in(row[3]),
            times=number_in(row[4]),
            waits=bool(row[5]),
            address=address_of(_data(row[0])),
        )
        for row in _lists(answer)
    ]


def totals_in(answer: Value) -> dict[str, str]:
    """Return names and values of an answer to TOTALS."""
    words = list(map(text_in, _list(answer)))
    return dict(zip(words[::2], words[1::2], strict=True))


def job_in(answer: Value) -> Job:
    """Return the job of an answer to JOB, which is not None."""
    words = _list(answer)
    facts = dict(zip(map(text_in, words[::2]), words[1::2], strict=True))
    body, size = text_in(facts["body"]), number_in(facts["body_bytes"])
    state, was_given = text_in(facts["state"]), bool(facts["was_given"])
    nacks, lost = number_in(facts["nacks"]), number_in(facts["more_deliveries"])
    return Job(
        id=text_in(facts["id"]),
        queue=text_in(facts["queue"]),
        state=state,
        created=number_in(facts["created"]),
        age=number_in(facts["age"]),
        ttl=number_in(facts["ttl"]),
        delay=number_in(facts["delay"]),
        retry=number_in(facts["retry"]),
        was_queued=bool(facts["was_queued"]),
        was_given=was_given,
        deliveries=nacks + lost + (was_given and state == "active"),
        nacks=nacks,
        lost=lost,
        comes_in=number_in(facts["comes_in"]),
        paused=text_in(facts["paused"]),
        wanted=number_in(facts["wanted"]),
        copies=[_copy(row) for row in _lists(facts["copies"])],
        body=body,
        body_bytes=size,
        is_cut=len(_data(facts["body"])) < size,
        address=address_of(_data(facts["id"])),
        queue_address=address_of(_data(facts["queue"])),
    )


def copy_state(job: Job, copy: CopyRow) -> str:
    """Return what is known of a copy of a job."""
    words = _COPY_OF.get(job.state, _COPY)
    return words[copy.is_confirmed or "myself" in copy.flags]


def _copy(row: Sequence[Value]) -> CopyRow:
    return CopyRow(
        id=text_in(row[0]),
        address=names.host_port(text_in(row[1]), number_in(row[2])),
        flags=list(map(text_in, _list(row[3]))),
        is_confirmed=bool(row[4]),
    )


# ---- parts of answers


def _lists(answer: Value) -> Sequence[Sequence[Value]]:
    return [_list(row) for row in _list(answer)]


def _list(value: Value) -> Sequence[Value]:
    if isinstance(value, list):
        return value
    raise BadInput(f"the broker answered {value!r:.60}")


def _data(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    raise BadInput(f"the broker answered {value!r:.60}")


def number_in(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise BadInput(f"the broker answered {value!r:.60}")


def text_in(value: Value) -> str:
    if isinstance(value, Status):
        return value.text
    return str(value) if isinstance(value, int) else readable(_data(value))
