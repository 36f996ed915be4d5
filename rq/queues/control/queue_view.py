"""The view of a queue, as its owner shows it; nothing here changes anything."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import rq
from rq.message import waits
from rq.queues.attempts.attempt import Attempt, Batch, PoolWorker
from rq.queues.attempts.lease import Lease
from rq.queues.control import message_view
from rq.queues.delivery import owed
from rq.queues.maintenance.stall import Stall
from rq.queues.owner.owner import Owner
from rq.replies import (
    Counts,
    Detail,
    Durations,
    Elsewhere,
    FiguresView,
    Held,
    LongRun,
    PauseView,
    Running,
    WorkerView,
)
from rq.words import visible
from rq.words.states import COUNTED, State

_SAMPLE = Path(rq.__file__).resolve().parent / "bundled" / "demo" / "run"
LEASED = 20  # messages under leases that `detail` lists; `leases` has all
_TELLING = 20  # attempts of the last day, from which on their p95 tells something
_LONG = 60.0  # seconds; what is shorter is not long
_MOST_LONG = 10
TEXT = 1000  # characters of what a script last said; `get_message` has all of it


def counts(owner: Owner) -> Counts:
    """Return how many messages are in each of the six states."""
    kept = owner.spool.counts
    six = (state for state in COUNTED if state is not State.DISMISSED)
    numbers = {str(state): kept.of(state) for state in six}
    numbers["que"] += owner.spool.txns.stock.left - owner.backlog.riding
    return numbers


def detail(owner: Owner, stall: Stall, checkpoint_seq: int) -> Detail:
    """Return what an operator wants to know of the queue."""
    spool = owner.spool
    closed = owner.admission.failure()
    first = owner.backlog.first_due()
    stalled = stall.sentence()
    running, durations = _all_running(owner), _durations(owner)
    return {
        "name": owner.name,
        "pid": os.getpid(),
        "uptime": int(time.monotonic() - owner.began),
        "status": owner.status,
        "admin": str(owner.admission.admin),
        "paused": _paused(owner),
        "oper": "SCRIPTERROR" if owner.script.error else "UP",
        "reason": _reason(owner),
        "counts": {**counts(owner), "errack": spool.counts.of(State.DISMISSED)},
        "accepting": closed is None,
        "closed_reason": None if closed is None else str(closed),
        "closed_kind": None if closed is None else str(closed.kind),
        "is_sample": _is_sample(owner),
        "restored": owner.admission.restored,
        "stopping": owner.admission.stopping,
        "rows": spool.txns.stock.left,
        "lag": spool.lag,
        "lag_bytes": spool.lag_bytes,
        "stuck": spool.stuck,
        "left_at_door": {
            visible.line(name): why for name, why in owner.health.deposits.items()
        },
        "stalled": None if stalled is None else stalled[1],
        "stalled_by": None if stalled is None else stalled[0],
        "num_workers": owner.config.num_workers,
        "slots_used": owner.config.num_workers - owner.slots_free,
        "limits": _limits(owner),
        "running": running,
        "held": _held(owner),
        "durations": durations,
        "long_runs": long_runs(
            running, durations, owner.config.long_run, spool.clock()
        ),
        "gathering": len(owner.backlog.gathering),
        "workers": [_worker(worker) for worker in owner.attempts.workers.values()],
        "elsewhere": elsewhere(owner),
        "next_due": first,
        "oldest_due_age": None if first is None else max(0.0, spool.clock() - first),
        "series": owner.rates.to_json(time.monotonic(), spool.depth, len(owner.leases)),
        "owed": len(spool.owed),
        "in_doubt": owed.doubtful(owner.spool),
        "journal_id": spool.journal_id,
        "seq": spool.durable_seq,
        "checkpoint_seq": checkpoint_seq,
    }


def figures(owner: Owner) -> FiguresView:
    """Return what monitors measure."""
    spool = owner.spool
    first = owner.backlog.first_due()
    remote = elsewhere(owner)
    figures = spool.figures
    return {
        "status": owner.status,
        "counts": {**counts(owner), "errack": spool.counts.of(State.DISMISSED)},
        "rows": spool.txns.stock.left,
        "lag": spool.lag,
        "oldest_due_age": 0.0 if first is None else max(0.0, spool.clock() - first),
        "slots_used": owner.config.num_workers - owner.slots_free,
        "elsewhere": 0 if remote is None else remote["workers"],
        "accepted": figures.accepted,
        "attempts": figures.attempts,
        "ended": [(*key, number) for key, number in figures.ended.items()],
        "wait": [*figures.wait.counts, figures.wait.sum],
        "run": [*figures.run.counts, figures.run.sum],
    }


def _durations(owner: Owner) -> Durations | None:
    now = owner.spool.clock()
    number, (half, most) = owner.spool.figures.durations.quantiles((0.5, 0.95), now)
    return {"attempts": number, "p50": half, "p95": most} if number else None


def long_runs(
    running: Iterable[Running], usual: Durations | None, times: float, now: float
) -> list[LongRun]:
    """Return the attempts that run so many times as long as the p95, which a few attempts
    do not tell; `times` 0: none. A batch is as long as its messages are many."""
    if not times or usual is None or usual["attempts"] < _TELLING:
        return []
    p95 = usual["p95"]
    runs = [
        LongRun(msg_id=row["msg_id"], ran=ran, times=ran / p95)
        for row in running
        if "batch" not in row and (ran := now - row["since"]) > max(_LONG, times * p95)
    ]
    return sorted(runs, key=lambda run: -run["ran"])[:_MOST_LONG]


def _is_sample(owner: Owner) -> bool:
    """Whether it is the `demo` that RQ brings, and not a queue of that name."""
    if owner.name != _SAMPLE.parent.name:
        return False
    script = os.path.join(owner.root.path, owner.config.script)
    return os.path.realpath(script) == str(_SAMPLE)


def _reason(owner: Owner) -> str | None:
    """Return what is wrong with the queue; None: nothing."""
    health = owner.health
    rows = (file.unusable for file in owner.spool.txns.stock if file.unusable)
    own = owner.script.error or health.config or health.checkpoint
    return own or next(rows, None)


def _paused(owner: Owner) -> PauseView | None:
    pause = owner.admission.pause
    return None if pause is None else waits.pause_view(**asdict(pause))


def elsewhere(owner: Owner) -> Elsewhere | None:
    """Return who works on messages elsewhere; None where that is not allowed, and none
    does."""
    pull = owner.config.pull
    if pull is None and not len(owner.leases):
        return None
    return owner.remote_workers.facts(0 if pull is None else pull["max"])


def _limits(owner: Owner) -> dict[str, float]:
    """Return what limits the attempts of a queue; nothing where only `grace` is said."""
    base, deadline = owner.settings.limits, owner.config.deadline
    given = base.given() if base.is_any else {}
    return given if deadline is None else {**given, "deadline": deadline}


def _held(owner: Owner) -> list[Held]:
    """Return the messages in run whose scripts have ended, and who keeps them there; of
    a batch the first."""
    return [
        {"msg_id": msg_id, "by": who}
        for msg_id, who in owner.attempts.kept_in_run().items()
    ]


def _worker(worker: PoolWorker) -> WorkerView:
    return {
        "pid": worker.pid,
        "phase": worker.phase,
        "messages": worker.messages,
        "since": worker.began_at,
    }


def _all_running(owner: Owner) -> list[Running]:
    """Return what is at work: of a batch one row, that of its first message; of the
    messages that are leased the first that were."""
    alone = [attempt for attempt in owner.attempts if attempt.claim.batch_id is None]
    in_batches = (_batch(batch) for batch in owner.attempts.batches if len(batch))
    leased = (_leased(lease) for lease in itertools.islice(owner.leases, LEASED))
    return sorted(
        [*in_batches, *(_running(attempt) for attempt in alone), *leased],
        key=lambda row: row["since"],
    )


def _batch(batch: Batch) -> Running:
    fields = message_view.batch_fields(batch)
    return {
        "msg_id": batch.first_id,
        "pid": batch.script.pid if batch.script else None,
        "phase": "running" if batch.script else "starting",
        "since": batch.began_at,
        "status": batch.said.text[:TEXT],
        "batch": fields["batch"],
        "messages": fields["messages"],
        "left": fields["left"],
    }


def _leased(lease: Lease) -> Running:
    return {
        "msg_id": lease.msg_id,
        "pid": None,
        "phase": message_view.LEASED,
        "since": lease.held.since,
        "status": lease.text[:TEXT],
        "leased_by": lease.by,
    }


def _running(attempt: Attempt) -> Running:
    return {
        "msg_id": attempt.msg_id,
        "pid": attempt.script.pid,
        "phase": attempt.phase,
        "since": attempt.work.began_at,
        "status": attempt.text[:TEXT],
    }
