"""Disque's commands about jobs: ADDJOB to WORKING."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rq.access.roles import Role
from rq.broker.desks.copies import TOO_FEW
from rq.broker.desks.job_desk import LEAVING, job_answer
from rq.broker.dialects.call import (
    BLOCKED,
    QUEUE,
    SYNTAX,
    Blocked,
    Call,
    Command,
    Refusal,
    Table,
    at_least,
    queues_in,
    timeout,
    wait_at,
    whole,
)
from rq.broker.state.bounds import MOST_JOBS, MOST_MOVED
from rq.broker.state.job import Added, Job, State
from rq.broker.state.waiters import Waiter
from rq.resp import NIL_ARRAY, Status, Value

TTL = 86_400
_MOST_RETRY = 300
_MOST_COPIES = 65_535
_USUAL_COPIES = 3
_LONGEST = 2**40  # seconds that a number may mean, and milliseconds by far


@dataclass(slots=True)
class Adding:
    """What ADDJOB says."""

    queue: bytes
    body: bytes
    wait_ms: int = 0  # that its producer waits for copies; 0: for ever
    replicate: int | None = None  # None: as many as there are nodes, up to three
    delay: int = 0
    retry: int | None = None
    ttl: int | None = None
    maxlen: int = 0
    is_async: bool = False


def _number(least: int, why: str) -> Callable[[bytes], int]:
    def read(data: bytes) -> int:
        return min(at_least(least, data, why), _LONGEST)

    return read


def _copies(data: bytes) -> int:
    number = whole(data)
    if number is None or not 1 <= number <= _MOST_COPIES:
        raise Refusal("ERR REPLICATE must be between 1 and 65535")
    return number


_OPTIONS: dict[bytes, tuple[str, Callable[[bytes], int]]] = {
    b"REPLICATE": ("replicate", _copies),
    b"DELAY": ("delay", _number(0, "ERR DELAY time must be a non negative number")),
    b"RETRY": ("retry", _number(0, "ERR RETRY time must be a non negative number")),
    b"TTL": ("ttl", _number(1, "ERR TTL must be a number > 0")),
    b"MAXLEN": ("maxlen", _number(1, "ERR MAXLEN must be a positive number")),
}


def adding_in(args: Sequence[bytes]) -> Adding:
    """Return what the arguments of ADDJOB say; Refusal for those that make no sense."""
    queue, body, wait, *options = args
    adding, left = Adding(queue, body), deque(options)
    while left:
        name = left.popleft().upper()
        if name == b"ASYNC":
            adding.is_async = True
        elif name in _OPTIONS and left:
            option, read = _OPTIONS[name]
            setattr(adding, option, read(left.popleft()))
        else:
            raise Refusal(SYNTAX)
    adding.wait_ms = timeout(wait)
    return adding


def addjob(call: Call) -> Value | Blocked:
    """Take a job; its id is the answer."""
    adding = adding_in(call.args)
    copies = adding.replicate or min(_USUAL_COPIES, call.node.peers.size)
    if copies > 1 and adding.retry == 0:
        raise Refusal(
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 "
            "(at-most-once delivery)"
        )
    ttl = TTL if adding.ttl is None else adding.ttl
    if adding.delay >= ttl:
        raise Refusal(
            "ERR The specified DELAY is greater than TTL. Job refused since would "
            "never be delivered"
        )
    why_none = call.node.cannot_keep()
    if copies > 1 or why_none is not None:
        _need_copies(call, copies, why_none, waits=not adding.is_async)
    target = call.node.jobs.queues.get(adding.queue)
    if target is not None and adding.maxlen and len(target) >= adding.maxlen:
        raise Refusal("MAXLEN Queue is already longer than the specified MAXLEN count")
    if target is not None and target.into:
        raise Refusal("PAUSED Queue paused in input, try later")
    retry = adding.retry
    if retry is None:
        retry = min(_MOST_RETRY, max(1, ttl // 10))
    added = call.node.desk.new(
        adding.queue,
        adding.body,
        ttl=ttl,
        delay=adding.delay,
        retry=retry,
        now=call.now,
        wall_ms=call.wall_ms,
    )
    if copies == 1 and why_none is None:
        call.node.emit(added, call.now)
        call.node.desk.serve(adding.queue, call.now)
        return Status(added.job)
    return _copied(call, added, copies, adding)


def _copied(call: Call, added: Added, copies: int, adding: Adding) -> Value | Blocked:
    """Take a job of which other nodes are to have copies."""
    node, now = call.node, call.now
    if adding.is_async:
        node.replication.copies.add_async(added, copies, now)
    else:
        wait = min(adding.wait_ms / 1000, _LONGEST)
        until = now + wait if wait else None
        node.replication.copies.add(added, copies, call.client, until, now)
        return BLOCKED
    node.desk.serve(added.queue, now)
    return Status(added.job)


def _need_copies(call: Call, copies: int, why_none: str | None, *, waits: bool) -> None:
    """Refuse a job of which more copies are wanted than can be kept: by this node, unless
    it takes none, and by others. A node that is not suspected counts while its link is
    broken, if the producer waits: it is asked again when the link stands."""
    peers = call.node.peers
    there = peers.counted if waits else peers.reachable
    missing = copies - (why_none is None) - len(there)
    if missing > 0:
        text = TOO_FEW.text
        if why_none and missing == 1:
            text += (
                ", since I'm unable to hold a copy of the message for the following "
                f"reason: {why_none}"
            )
        raise Refusal(text)


@dataclass(slots=True)
class Getting:
    """The options of GETJOB."""

    waits: bool = True
    timeout: int = 0  # milliseconds; 0: for ever
    count: int = 1
    counters: bool = False
    queues: list[bytes] = field(default_factory=list)


def getting_in(words: list[bytes]) -> Getting:
    """Return what the words of GETJOB say; Refusal for those that make no sense."""
    getting, left = Getting(), deque(words)
    while left:
        name = left.popleft().upper()
        if name == b"FROM" and left:
            getting.queues = queues_in(list(left))
            return getting
        if name == b"NOHANG":
            getting.waits = False
        elif name == b"WITHCOUNTERS":
            getting.counters = True
        elif name == b"TIMEOUT" and left:
            getting.timeout = timeout(left.popleft())
        elif name == b"COUNT" and left:
            why = "ERR COUNT must be a number greater than zero"
            getting.count = min(at_least(1, left.popleft(), why), MOST_JOBS)
        else:
            break
    raise Refusal(SYNTAX)


def getjob(call: Call) -> Value | Blocked:
    """Give jobs that there are, or wait for one."""
    getting, node = call.read(getting_in), call.node
    given = node.desk.give_many(getting.queues, getting.count, call.client, call.now)
    if given:
        return [job_answer(queue, job, getting.counters) for queue, job in given]
    if node.peers.size > 1:
        for name in dict.fromkeys(getting.queues):
            node.replication.federation.need(name, call.now)
    if not getting.waits:
        return NIL_ARRAY
    if node.jobs.leaving:
        return LEAVING
    wait = min(getting.timeout / 1000, _LONGEST)
    until = call.now + wait if wait else None
    queues = list(dict.fromkeys(getting.queues))
    waiter = Waiter(call.client, queues, getting.counters, until)
    return wait_at(node.desk.waiters, waiter)


def _from(call: Call) -> Sequence[bytes]:
    return call.read(getting_in).queues


def ackjob(call: Call) -> Value:
    """Jobs are done; how many were known is the answer."""
    return call.node.replication.collection.ack(call.job_ids(), call.now)


def fastack(call: Call) -> Value:
    """Jobs are done, here and wherever a message arrives that says so."""
    collection = call.node.replication.collection
    return collection.delete_everywhere(call.job_ids(), call.now)


def deljob(call: Call) -> Value:
    """Remove jobs, whatever becomes of them."""
    return call.node.desk.remove(call.job_ids(), "deleted", call.now)


def _those_there(call: Call) -> list[Job]:
    by_id = call.node.jobs.by_id
    return [by_id[job_id] for job_id in call.job_ids(MOST_MOVED) if job_id in by_id]


def _enqueue(call: Call, *, nack: bool) -> Value:
    node = call.node
    queued = [
        job for job in _those_there(call) if node.desk.enqueue(job, call.now, nack=nack)
    ]
    for name in dict.fromkeys(job.queue.name for job in queued):
        node.desk.serve(name, call.now)
    return len(queued)


def enqueue(call: Call) -> Value:
    """Let jobs come into their queues now."""
    return _enqueue(call, nack=False)


def nack(call: Call) -> Value:
    """Jobs could not be done: let them come again now."""
    return _enqueue(call, nack=True)


def dequeue(call: Call) -> Value:
    """Take jobs out of their queues until they are due again."""
    return sum(call.node.desk.dequeue(job, call.now) for job in _those_there(call))


def working(call: Call) -> Value:
    """A job is worked on: it comes again a whole RETRY from now."""
    (job_id,) = call.job_ids()
    job = call.node.jobs.by_id.get(job_id)
    if job is None:
        raise Refusal("NOJOB Job not known in the context of this node.")
    if job.state is State.ACKED:
        raise Refusal("ACKED Job already acknowledged.")
    if call.now - job.created > (job.expires - job.created) / 2:
        raise Refusal(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to "
            "postpone the next delivery."
        )
    if job.retry or job.state is State.QUEUED:
        call.node.desk.postpone(job, call.now)
    return int(job.retry)


TABLE: Table = {
    b"ADDJOB": Command(
        addjob,
        -4,
        Role.PRODUCER,
        writes=True,
        grows=True,
        queues=QUEUE,
        bodies=slice(1, 2),
    ),
    b"GETJOB": Command(getjob, -2, Role.WORKER, writes=True, named=_from),
    b"ACKJOB": Command(ackjob, -1, Role.WORKER, writes=True, of_jobs=True),
    b"FASTACK": Command(fastack, -1, Role.WORKER, writes=True, of_jobs=True),
    b"DELJOB": Command(deljob, -1, writes=True, of_jobs=True),
    b"NACK": Command(nack, -1, Role.WORKER, writes=True, grows=True, of_jobs=True),
    b"ENQUEUE": Command(enqueue, -1, writes=True, grows=True, of_jobs=True),
    b"DEQUEUE": Command(dequeue, -1, writes=True, of_jobs=True),
    b"WORKING": Command(working, 2, Role.WORKER, writes=True, of_jobs=True),
}
