"""What clients of the broker, Redis and beanstalkd say in each row of `broker.py`."""

from __future__ import annotations

from dialogue import Dialogue, Request, command, repeated

BODY = b"x" * 200
BATCH = 100  # messages in a batch
PIPELINE = 16  # commands in one packet
_PUT = b"put 1024 0 3600 %d\r\n%b\r\n" % (len(BODY), BODY)


def addjob(_name: bytes, rounds: int) -> Dialogue:
    return repeated(command(b"ADDJOB", b"added", BODY, b"0"), 1, rounds)


def lpush(_name: bytes, rounds: int) -> Dialogue:
    return repeated(command(b"LPUSH", b"list", BODY), 1, rounds)


def xadd(_name: bytes, rounds: int) -> Dialogue:
    return repeated(command(b"XADD", b"added", b"*", b"f", BODY), 2, rounds)


def put(_name: bytes, rounds: int) -> Dialogue:
    return repeated(b"use added\r\n" + _PUT, 2, rounds)


# ---- a message at a time, sent, taken and done


def job_cycle(_name: bytes, rounds: int) -> Dialogue:
    add = Request(command(b"ADDJOB", b"cycle", BODY, b"0"), 1)
    take = Request(command(b"GETJOB", b"FROM", b"cycle"), 8)
    for _ in range(rounds):
        yield add
        taken = yield take
        yield Request(command(b"ACKJOB", taken.split(b"\r\n")[5]), 1)


def stream_cycle(name: bytes, rounds: int) -> Dialogue:
    add = Request(command(b"XADD", b"cycle", b"*", b"f", BODY), 2)
    take = Request(_read(b"cycle", b"g", name, 1), 13)
    for _ in range(rounds):
        yield add
        taken = yield take
        yield Request(command(b"XACK", b"cycle", b"g", taken.split(b"\r\n")[7]), 1)


def tube_cycle(_name: bytes, rounds: int) -> Dialogue:
    for _ in range(rounds):
        yield Request(_PUT, 1)
        taken = yield Request(b"reserve\r\n", 2)
        yield Request(b"delete %b\r\n" % taken.split()[1], 1)


# ---- many in one command, or in one packet


def reliable_batch(name: bytes, rounds: int) -> Dialogue:
    push = command(b"RQ.PUSH", name, *[BODY] * BATCH)
    pop = command(b"RQ.POP", b"COUNT", b"%d" % BATCH, name)
    for _ in range(rounds):
        yield Request(push, 1 + 2 * BATCH)
        taken = yield Request(pop, 1 + 7 * BATCH)
        ids = taken.split(b"\r\n")[5::7]
        yield Request(command(b"RQ.ACK", name, *ids), 1 + 2 * BATCH)


def stream_batch(name: bytes, rounds: int) -> Dialogue:
    add, read = command(b"XADD", b"batch", b"*", b"f", BODY), 5 + 8 * BATCH
    take = _read(b"batch", b"g", name, BATCH)
    for _ in range(rounds):
        yield Request(add * BATCH, 2 * BATCH)
        taken = yield Request(take, read)
        ids = taken.split(b"\r\n")[7::8]
        yield Request(command(b"XACK", b"batch", b"g", *ids), 1)


def tube_batch(_name: bytes, rounds: int) -> Dialogue:
    for _ in range(rounds):
        yield Request(_PUT * BATCH, BATCH)
        taken = yield Request(b"reserve\r\n" * BATCH, 2 * BATCH)
        ids = [line.split()[1] for line in taken.split(b"\r\n")[:-1:2]]
        yield Request(b"".join(b"delete %b\r\n" % each for each in ids), BATCH)


# ---- each event for each group


def event_adding(_name: bytes, number: int) -> Dialogue:
    add = command(b"QADD", b"events", b"86400", BODY)
    return repeated(add * PIPELINE, 2 * PIPELINE, number // PIPELINE)


def event_group(name: bytes, rounds: int) -> Dialogue:
    take = command(b"QGET", b"events", name, b"EX", b"60") * PIPELINE
    for _ in range(rounds):
        taken = yield Request(take, 5 * PIPELINE)
        ids = taken.split(b"\r\n")[2::5]
        done = [command(b"QACK", b"events", name, event) for event in ids]
        yield Request(b"".join(done), PIPELINE)


def stream_making(_name: bytes, _number: int) -> Dialogue:
    for stream in (b"cycle", b"batch"):
        make = command(b"XGROUP", b"CREATE", stream, b"g", b"0", b"MKSTREAM")
        yield Request(make, 1)


def stream_adding(_name: bytes, number: int) -> Dialogue:
    add = command(b"XADD", b"events", b"*", b"f", BODY)
    return repeated(add * PIPELINE, 2 * PIPELINE, number // PIPELINE)


def stream_group(name: bytes, rounds: int) -> Dialogue:
    yield Request(command(b"XGROUP", b"CREATE", b"events", name, b"0"), 1)
    take = _read(b"events", name, name, 1) * PIPELINE
    for _ in range(rounds):
        taken = yield Request(take, 13 * PIPELINE)
        ids = taken.split(b"\r\n")[7::13]
        done = [command(b"XACK", b"events", name, event) for event in ids]
        yield Request(b"".join(done), PIPELINE)


def _read(stream: bytes, group: bytes, name: bytes, count: int) -> bytes:
    """Take messages of a stream for a consumer of a group."""
    words = (b"GROUP", group, name, b"COUNT", b"%d" % count, b"STREAMS", stream, b">")
    return command(b"XREADGROUP", *words)


# ---- who waits, and who sends

_GET = command(b"GETJOB", b"FROM", b"wait")
_TAKE = command(b"BLPOP", b"wait", b"0")
BLOCKED_JOB = _GET, command(b"ADDJOB", b"wait", BODY, b"0")
BLOCKED_LIST = _TAKE, command(b"LPUSH", b"wait", BODY)
BLOCKED_TUBE = b"reserve\r\n", _PUT
