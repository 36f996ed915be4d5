"""Disque's commands that look at jobs and queues, and PAUSE."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rq.broker.cluster.messages import Pause
from rq.broker.desks.job_desk import job_answer
from rq.broker.desks.node import Node
from rq.broker.dialects.call import QUEUE, SYNTAX, Call, Command, Refusal, Table, whole
from rq.broker.state import ids
from rq.broker.state.body import size_of
from rq.broker.state.bounds import MOST_JOBS, MOST_MESSAGES, Room
from rq.broker.state.job import Job, Queue, State
from rq.resp import NIL_ARRAY, Status, Value

_COUNT = 100  # of a scan, unless it says another
_NEVER = None


def qlen(call: Call) -> Value:
    """How many jobs are in a queue."""
    queue = call.node.jobs.queues.get(call.args[0])
    return 0 if queue is None else len(queue)


def qpeek(call: Call) -> Value:
    """Show the next jobs of a queue; the newest ones first if the number is below 0."""
    name, number = call.args
    count = whole(number)
    if count is None:
        raise Refusal("ERR value is not an integer or out of range")
    queue = call.node.jobs.queues.get(name)
    if queue is None:
        return []
    jobs = iter(queue.jobs) if count >= 0 else reversed(queue.jobs)
    page = Room().take(jobs, min(abs(count), MOST_JOBS), body_bytes)
    return [job_answer(queue, job, counters=False) for job in page]


def qstat(call: Call) -> Value:
    """Tell of a queue."""
    queue = call.node.jobs.queues.get(call.args[0])
    if queue is None:
        return NIL_ARRAY
    sources, rate = call.node.replication.federation.figures(queue.name, call.now)
    facts: Mapping[str, Value] = {
        "name": queue.name,
        "len": len(queue),
        "age": int(call.now - queue.came),
        "idle": int(call.now - queue.used),
        "blocked": call.node.desk.waiters.count(queue.name),
        "import-from": sources,
        "import-rate": rate,
        "jobs-in": queue.jobs_in,
        "jobs-out": queue.jobs_out,
        "pause": queue.paused,
    }
    return _flat(facts)


def show(call: Call) -> Value:
    """Tell of a job."""
    job_id = ids.parsed(call.args[0])
    if job_id is None:
        raise Refusal(ids.BAD.text)
    job = call.node.jobs.by_id.get(job_id)
    return None if job is None else _flat(_of_job(call, job))


def _of_job(call: Call, job: Job) -> Mapping[str, Value]:
    due = max(0, int((job.due - call.now) * 1000)) if job.due else _NEVER
    spread = call.node.jobs.spreads.by_job.get(job.job_id)
    return {
        "id": job.job_id,
        "queue": job.queue.name,
        "state": str(job.state),
        "repl": 1 if spread is None else spread.wanted,
        "ttl": max(0, int(job.expires - call.now)),
        "ctime": job.ctime,
        "delay": int(job.delay),
        "retry": int(job.retry),
        "nacks": job.nacks,
        "additional-deliveries": job.deliveries,
        "nodes-delivered": sorted(spread.may_have) if spread else [call.node.node_id],
        "nodes-confirmed": sorted(spread.confirmed) if spread else [],
        "next-requeue-within": due,
        "next-awake-within": max(0, int((job.wakes - call.now) * 1000)),
        "body": job.body,
    }


def _flat(facts: Mapping[str, Value]) -> list[Value]:
    return [value for pair in facts.items() for value in pair]


# ---- scans


@dataclass(slots=True)
class _Scan:
    """The options of QSCAN and JSCAN."""

    cursor: int = 0
    count: int = _COUNT
    all_at_once: bool = False
    least: int | None = None
    most: int | None = None
    rate: int | None = None
    queue: bytes | None = None
    states: list[str] = field(default_factory=list)
    whole_jobs: bool = False


def _count(scan: _Scan, data: bytes) -> None:
    scan.count = max(1, min(_positive(data), MOST_JOBS))


def _minlen(scan: _Scan, data: bytes) -> None:
    scan.least = _positive(data)


def _maxlen(scan: _Scan, data: bytes) -> None:
    scan.most = _positive(data)


def _rate(scan: _Scan, data: bytes) -> None:
    scan.rate = _positive(data)


def _of_queue(scan: _Scan, data: bytes) -> None:
    scan.queue = data


def _state(scan: _Scan, data: bytes) -> None:
    word = data.decode(errors="replace").lower()
    if word not in list(State):
        raise Refusal("ERR Invalid job state name")
    scan.states.append(word)


def _reply(scan: _Scan, data: bytes) -> None:
    if data.lower() not in (b"all", b"id"):
        raise Refusal("ERR Invalid REPLY type, try ID or ALL")
    scan.whole_jobs = data.lower() == b"all"


def _positive(data: bytes) -> int:
    number = whole(data)
    if number is None or number < 0:
        raise Refusal("ERR value is not an integer or out of range")
    return number


_Options = Mapping[bytes, Callable[[_Scan, bytes], None]]
_OF_QUEUES: _Options = {
    b"COUNT": _count,
    b"MINLEN": _minlen,
    b"MAXLEN": _maxlen,
    b"IMPORTRATE": _rate,
}
_OF_JOBS: _Options = {
    b"COUNT": _count,
    b"QUEUE": _of_queue,
    b"STATE": _state,
    b"REPLY": _reply,
}


def _scan(words: Sequence[bytes], options: _Options) -> _Scan:
    scan, has_cursor, left = _Scan(), False, deque(words)
    while left:
        word = left.popleft()
        name = word.upper()
        if name == b"BUSYLOOP":
            scan.all_at_once = True
        elif name in options and left:
            options[name](scan, left.popleft())
        elif has_cursor:
            raise Refusal(SYNTAX)
        else:
            has_cursor, scan.cursor = True, _cursor(word)
    if scan.all_at_once:
        scan.count = MOST_JOBS if scan.whole_jobs else MOST_MESSAGES
    return scan


def _cursor(word: bytes) -> int:
    number = whole(word) if word else None
    if number is None or number < 0:
        raise Refusal("ERR invalid cursor or option name")
    return number


def qscan(call: Call) -> Value:
    """List the queues, some at a time, as they came; the cursor is the number of the
    last one."""
    scan = _scan(call.args, _OF_QUEUES)
    queues = call.node.jobs.queues_after(scan.cursor, scan.count)
    cursor = queues[-1].number if len(queues) == scan.count else 0
    return [
        str(cursor),
        [queue.name for queue in queues if _is_wanted(call, scan, queue)],
    ]


def _is_wanted(call: Call, scan: _Scan, queue: Queue) -> bool:
    if scan.least is not None and len(queue) < scan.least:
        return False
    if scan.most is not None and len(queue) > scan.most:
        return False
    if not scan.rate:
        return True
    return (
        call.node.replication.federation.figures(queue.name, call.now)[1] >= scan.rate
    )


def jscan(call: Call) -> Value:
    """List the jobs, some at a time, the oldest first; the cursor is the place of the
    last one."""
    scan = _scan(call.args, _OF_JOBS)
    jobs = call.node.jobs.jobs_after(scan.cursor, scan.count)
    size = body_bytes if scan.whole_jobs else _no_bytes
    page = list(Room().take(jobs, scan.count, size))
    is_over = len(page) == len(jobs) < scan.count
    cursor = 0 if is_over else page[-1].ctime
    wanted = (job for job in page if _is_of(scan, job))
    return [str(cursor), list(_answers(call, scan, wanted))]


def _is_of(scan: _Scan, job: Job) -> bool:
    if scan.queue is not None and job.queue.name != scan.queue:
        return False
    return not scan.states or job.state in scan.states


def body_bytes(job: Job) -> int:
    """Return the size of a job in an answer."""
    return size_of(job.body)


def _no_bytes(job: Job) -> int:
    return 0


def _answers(call: Call, scan: _Scan, jobs: Iterable[Job]) -> Iterable[Value]:
    for job in jobs:
        yield _flat(_of_job(call, job)) if scan.whole_jobs else Status(job.job_id)


# ---- PAUSE


def pause(call: Call) -> Value:
    """Pause a queue in input, in output, or not at all; here, or on all nodes."""
    name, *words = call.args
    paused = _paused_by(words)
    if paused is not None:
        call.node.desk.pause(name, *paused, call.now)
    queue = call.node.jobs.queues.get(name)
    if b"bcast" in map(bytes.lower, words):
        _pause_elsewhere(call.node, name, queue)
    return Status("none" if queue is None else queue.paused)


def _paused_by(words: Sequence[bytes]) -> tuple[bool, bool] | None:
    """Return what the words of PAUSE pause, input and output; None: they only look."""
    into = out = changes = False
    for word in words:
        match word.lower():
            case b"in":
                into = changes = True
            case b"out":
                out = changes = True
            case b"all":
                into = out = changes = True
            case b"none":
                into = out = False
                changes = True
            case b"state" | b"bcast":
                pass
            case _:
                raise Refusal(SYNTAX)
    return (into, out) if changes else None


def _pause_elsewhere(node: Node, name: bytes, queue: Queue | None) -> None:
    """Pause a queue on the other nodes as it is paused here."""
    into, out = (False, False) if queue is None else (queue.into, queue.out)
    for other in node.peers.others:
        node.send(other, Pause(name, into, out))


TABLE: Table = {
    b"QLEN": Command(qlen, 2, queues=QUEUE),
    b"QPEEK": Command(qpeek, 3, queues=QUEUE),
    b"QSTAT": Command(qstat, 2, queues=QUEUE),
    b"SHOW": Command(show, 2, of_jobs=True),
    b"QSCAN": Command(qscan, -1),
    b"JSCAN": Command(jscan, -1),
    b"PAUSE": Command(pause, -3, writes=True, queues=QUEUE),
}
