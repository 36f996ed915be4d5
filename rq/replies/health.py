"""What is not well: the troubles that answers of owners, supervisor and timers hold.

`replies.verdict` has the table of all kinds. A queue that an operator paused or took down is
well. Trouble that passes by itself is shown, and does not make RQ unwell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rq.kinds import Kind
from rq.replies import (
    ChildView,
    Detail,
    LongRun,
    SupervisorStatus,
    TimerTrouble,
    verdict,
)
from rq.replies.verdict import Fault, Trouble
from rq.words.states import Child
from rq.words.wording import duration, moment

# A start takes a moment; one that takes long, or comes after a failure, has a reason.
_PASSING = (Child.STARTING, Child.STOPPING)
_MUCH_LAG = 1000  # folders
_SAMPLE = "demo"  # the queue whose failures are samples, if it is RQ's own
_DISKS = {
    str(Kind.NO_ROOM): Fault.DISK_FULL,
    str(Kind.DISK_FAILED): Fault.DISK_FAILED,
}
# Why fires were missed, as `rq.timers.missed.Why` says it.
REASONS = {
    "down": "RQ was down",
    "paused": "the timer was paused",
    "overlap": "an earlier message had not ended",
    "refused": "the queue took no message",
    "no queue": "there was no queue",
}
_STALLS = {"outside": Fault.HOSTS_AWAY, "workers": Fault.NO_WORKERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue, as the asker for the verdict sees it."""

    name: str
    admin: str  # what a person wants: UP, PAUSE, DOWN
    wish: str  # that in a sentence: by whom, why, until when
    counts: Mapping[str, int]  # messages by state
    detail: Detail | None  # None: its owner does not answer
    child: ChildView  # its process, as the supervisor tells of it
    silence: str = ""  # why it does not answer


def of_all(
    facts: SupervisorStatus, queues: Iterable[Queue], *, is_running: bool
) -> Iterator[Trouble]:
    """Give all that is wrong: what keeps messages from going on, then what has failed,
    then what a person wants so. `is_running`: a supervisor answers; without it no queue
    is missed."""
    seen = list(queues)
    if not is_running:
        yield Trouble(fault=Fault.NOT_RUNNING, who="RQ")
    yield from of_helpers(facts)
    for queue in seen:
        if queue.detail is not None:
            yield from of_queue(queue.name, queue.detail)
        elif is_running:
            yield from of_silent(queue.name, queue.admin, queue.child, queue.silence)
    for queue in seen:
        yield from of_counts(queue)
    for queue in seen:
        yield from of_wishes(queue.name, queue.admin, queue.wish)


def of_counts(queue: Queue) -> Iterator[Trouble]:
    """Give that messages of a queue have failed."""
    detail = queue.detail
    is_sample = detail.get("is_sample", False) if detail else queue.name == _SAMPLE
    yield from of_errors(queue.name, queue.counts, is_sample=is_sample)


def of_helpers(facts: SupervisorStatus) -> Iterator[Trouble]:
    """Give what is wrong with helpers, scandir's links and timers; `facts` is the
    supervisor's `status`."""
    for child in children(facts):
        if child.get("kind") != "queue" and (trouble := _of_helper(child)):
            yield trouble
    yield from of_held(facts)
    for name, why in (facts.get("unusable") or {}).items():
        yield Trouble(fault=Fault.UNUSED, who=f"queue/{name}", why=why)
    for name, why in (facts.get("scripts") or {}).items():
        yield Trouble(fault=Fault.WRONG_SCRIPT, who=name, why=why, queue=name)
    yield from _of_displaced(facts)
    for name in facts.get("held_timers") or ():
        yield Trouble(fault=Fault.TIMER_WAITS, who=f"timers/{name}", what=name)
    yield from of_timers((facts.get("timers") or {}).get("troubles") or {})
    yield from _of_files(facts)


def of_timers(troubles: Mapping[str, TimerTrouble]) -> Iterator[Trouble]:
    """Give what became of timers that a person should know: a line for each that is
    overdue, or whose last message failed, and one for all fires that were missed."""
    for name, trouble in troubles.items():
        if (since := trouble["overdue"]) is not None:
            what = f"since {moment(since)} UTC"
            yield Trouble(fault=Fault.TIMER_OVERDUE, who=f"timers/{name}", what=what)
        if trouble["failed"]:
            why = trouble["failed_why"] or "its message is in err"
            yield Trouble(fault=Fault.TIMER_FAILED, who=f"timers/{name}", what=why)
    missed = {name: trouble for name, trouble in troubles.items() if trouble["missed"]}
    if missed:
        yield _of_missed(missed)


def in_words(trouble: TimerTrouble) -> str:
    """Return why a person should look at a timer."""
    said = []
    if (since := trouble["overdue"]) is not None:
        said.append(
            f"a success was expected, and none has come since {moment(since)} UTC"
        )
    if trouble["missed"]:
        more = " or more" if trouble["more"] else ""
        why = REASONS[trouble["why"]]
        said.append(f"missed {trouble['missed']:,}{more}: {why}")
    if trouble["failed"]:
        said.append(f"the last failed: {trouble['failed_why']}".rstrip(": "))
    return "; ".join(said)


def _of_missed(missed: Mapping[str, TimerTrouble]) -> Trouble:
    reasons = sorted({REASONS[trouble["why"]] for trouble in missed.values()})
    more = " or more" if any(trouble["more"] for trouble in missed.values()) else ""
    first = next(iter(missed))
    who = f"timers/{first}" if len(missed) == 1 else verdict.named("timers", [*missed])
    return Trouble(
        fault=Fault.TIMER_MISSED,
        who=who,
        number=sum(trouble["missed"] for trouble in missed.values()),
        what=f"{more} ({', '.join(reasons)})",
    )


def _of_files(facts: SupervisorStatus) -> Iterator[Trouble]:
    """Give what is wrong with links and timers; of a queue that is held `_of_displaced`
    says more."""
    held = facts.get("displaced") or {}
    helpers = {Fault.LINK: facts.get("scandir"), Fault.TIMER: facts.get("timers")}
    for fault, state in helpers.items():
        place = "scandir" if fault is Fault.LINK else "timers"
        for name, text in ((state or {}).get("errors") or {}).items():
            if name not in held:
                yield Trouble(fault=fault, who=f"{place}/{name}", why=str(text))


def children(facts: SupervisorStatus) -> Sequence[ChildView]:
    """Return the children that a supervisor tells of; none when it does not answer."""
    return facts.get("children") or []


def _of_displaced(facts: SupervisorStatus) -> Iterator[Trouble]:
    minded = {child.get("name") for child in children(facts)}
    if any(child.get("kind") == "broker" for child in children(facts)):
        minded.add("broker/")  # the directory; a queue may be called broker
    for name, why in (facts.get("displaced") or {}).items():
        if name not in minded:  # else its child says so
            yield Trouble(
                fault=Fault.DISPLACED, who=name, what=name, why=why, stops=True
            )


def _of_helper(child: ChildView) -> Trouble | None:
    state, reason = str(child.get("state")), str(child.get("reason") or "")
    if state in (Child.UP, Child.DOWN) or child.get("wanted") == "DOWN":
        return None
    passing = state in _PASSING and not reason
    who = str(child.get("name", "?"))
    return Trouble(fault=Fault.HELPER, who=who, what=state, why=reason, passing=passing)


def of_held(facts: SupervisorStatus) -> Iterator[Trouble]:
    """Give where a helper should listen, and another process does."""
    for child in children(facts):
        if child.get("state") == Child.UP and child.get("held"):
            yield Trouble(fault=Fault.PORT_HELD, who=child["name"], what=child["held"])


def of_silent(name: str, admin: str, child: ChildView, why: str) -> Iterator[Trouble]:
    """Give what is wrong with a queue that nobody answers for: `admin` is what is wanted
    of it, `child` what the supervisor says of its process, `why` is told if it has no
    reason."""
    if admin == "DOWN":
        return
    state, reason = str(child.get("state") or ""), str(child.get("reason") or "")
    passing = state in _PASSING and not reason
    yield Trouble(
        fault=Fault.SILENT if state in ("", Child.UP) else Fault.QUEUE_STATE,
        who=name,
        what=state,
        why=reason or ("" if passing else why),
        queue=name,
        passing=passing,
        stops=True,
    )


def of_queue(name: str, detail: Detail) -> Iterator[Trouble]:
    """Give what is wrong with a queue, by its answer to `detail`; not its errors."""
    if detail["admin"] == "DOWN":
        return
    yield from _stops(name, detail)
    yield from of_files(name, detail)
    yield from _hampers(name, detail)


def _stops(name: str, detail: Detail) -> Iterator[Trouble]:
    """Give what keeps a queue from taking messages, or from running them."""
    if why := detail["closed_reason"]:
        fault = _DISKS.get(detail.get("closed_kind") or "", Fault.CLOSED)
        yield Trouble(fault=fault, who=name, queue=name, why=why, stops=True)
    if detail["oper"] != "UP":
        why = detail["reason"] or ""
        fault = Fault.SCRIPT_ERROR
        yield Trouble(fault=fault, who=name, queue=name, why=why, stops=True)
    if why := detail.get("stalled"):
        # What waits for others runs as soon as they are there; it is not this machine.
        fault = _STALLS.get(detail.get("stalled_by") or "", Fault.STALLED)
        here = fault is Fault.STALLED
        yield Trouble(fault=fault, who=name, queue=name, why=why, stops=here)


def _hampers(name: str, detail: Detail) -> Iterator[Trouble]:
    """Give what else a person should look at."""
    if (stuck := detail.get("stuck")) and not detail["closed_reason"]:
        yield Trouble(fault=Fault.NO_FOLDERS, who=name, queue=name, why=stuck)
    if number := detail.get("in_doubt"):
        yield Trouble(fault=Fault.IN_DOUBT, who=name, queue=name, number=number)
    for file, why in (detail.get("left_at_door") or {}).items():
        yield Trouble(fault=Fault.DOOR, who=name, queue=name, what=file, why=str(why))
    for held in detail.get("held") or ():
        fault, msg_id, by = Fault.HELD_ATTEMPT, held["msg_id"], held["by"]
        yield Trouble(fault=fault, who=name, queue=name, what=msg_id, why=by)
    for run in detail.get("long_runs") or ():
        msg_id, why = run["msg_id"], _long(run)
        yield Trouble(fault=Fault.LONG_RUN, who=name, queue=name, what=msg_id, why=why)
    if (lag := detail.get("lag") or 0) > _MUCH_LAG:
        fault = Fault.LAG
        yield Trouble(fault=fault, who=name, queue=name, number=lag, passing=True)


def _long(run: LongRun) -> str:
    ran, times = duration(run["ran"]), run["times"]
    silent = f"`rq show {run['msg_id']}` says whether it is silent"
    return f"{ran}, {times:.0f} × longer than its p95; {silent}"


def of_files(name: str, detail: Detail) -> Iterator[Trouble]:
    """Give what is wrong with files of a queue: its config, its checkpoint, rows that are
    to become messages."""
    why = detail["reason"]
    if why and detail["oper"] == "UP":
        yield Trouble(fault=Fault.PROBLEM, who=name, queue=name, why=why)


def of_wishes(name: str, admin: str, text: str) -> Iterator[Trouble]:
    """Give that a person has paused a queue, or taken it down; `text` says how. It is as
    they want it, and they may have forgotten it."""
    faults = {"PAUSE": Fault.PAUSED, "DOWN": Fault.DOWN}
    if fault := faults.get(admin):
        what = text or "paused"
        yield Trouble(fault=fault, who=name, queue=name, what=what, passing=True)


def of_errors(
    name: str, counts: Mapping[str, int], *, is_sample: bool = False
) -> Iterator[Trouble]:
    """Give that messages of a queue have failed, and are not acknowledged;
    `is_sample`: its script does so when it is asked to."""
    if number := counts.get("err", 0):
        fault = Fault.SAMPLE if is_sample else Fault.FAILED
        yield Trouble(fault=fault, who=name, queue=name, number=number)
