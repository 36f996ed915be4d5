"""What Prometheus reads: `/metrics`.

Owners count what happens; here their figures are gathered and written down. Of each queue
there are so many series, of labels that are words of RQ's own; the names of queues are
the only ones that people choose. The metrics tell of so many queues at most, so that names
cannot fill the memory of Prometheus.

A page of 1,000 queues has 40,000 lines: what is the same for each of them (names, bounds)
is written once, and a queue's label, escaped once, is put between.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import RQError
from rq.message.causes import Cause
from rq.replies import FiguresView, SupervisorStatus, TimerRow
from rq.replies.queue import BUCKETS
from rq.rpc.broker import answers, questions
from rq.rpc.broker.rows import QueueRow
from rq.web import views
from rq.web.pages import broker, facts
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.states import State

KIND = "text/plain; version=0.0.4; charset=utf-8"
_MOST_QUEUES = 1000  # of RQ, and of the broker those with most jobs
_MOST_BROKER_QUEUES = 200
_LONGEST = 200  # characters of a name; a longer one is left out
_PATIENCE = 4.0  # seconds in which all have to answer; most monitors wait five
_STATES = ("prep", "que", "run", "done", "relayed", "err", "errack")
_ENDS = (State.DONE, State.RELAYED, State.ERR)
_CAUSES = frozenset(Cause)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_BOUNDS = [f'le="{bound:g}"' for bound in BUCKETS] + ['le="+Inf"']


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, what it counts, and its values by labels."""

    name: str
    kind: str  # gauge, counter or histogram
    about: str
    values: Sequence[tuple[Mapping[str, str], float]] = field(default_factory=list)


def add_routes(routes: Routes, site: Site) -> None:
    """Add `/metrics`."""

    async def on_get(req: Request, resp: Response) -> None:
        resp.content_type = KIND
        resp.text = "".join(await _blocks(site))

    routes.get("/metrics", on_get, Role.VIEWER)


async def _blocks(site: Site) -> list[str]:
    """Ask all at once; return the text, in pieces."""
    names = facts.queue_names(site.root)[:_MOST_QUEUES]
    status, views_of_queues, timers, of_broker = await asyncio.gather(
        views.supervisor(site.owners, _PATIENCE),
        views.figures(site.owners, names, _PATIENCE),
        _timers(site),
        asyncio.to_thread(_broker, site),
    )
    queues = dict(zip(names, views_of_queues, strict=True))
    root = [*_of_supervisor(status), *_of_disk(site), *_of_timers(timers), *of_broker]
    return [text(root), *_of_queues(queues)]


async def _timers(site: Site) -> Sequence[TimerRow]:
    try:
        return (await views.timers(site.owners))["timers"]
    except RQError:
        return []


def text(metrics: Iterable[Metric]) -> str:
    r"""Return metrics in the format of Prometheus.

    >>> print(text([Metric("a", "gauge", "A.", [({"q": 'x"\n'}, 1234567)])]), end="")
    # HELP a A.
    # TYPE a gauge
    a{q="x\"\n"} 1234567.0
    """
    lines = []
    for metric in metrics:
        lines.append(_head(metric.name, metric.kind, metric.about))
        for labels, value in metric.values:
            pairs = (f'{name}="{label(word)}"' for name, word in labels.items())
            inside = ",".join(pairs)
            lines.append(
                f"{metric.name}{f'{{{inside}}}' if inside else ''} {float(value)}\n"
            )
    return "".join(lines)


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def label(word: str) -> str:
    """Return the value of a label as it stands between quotes."""
    return word.translate(_ESCAPES)


def _valued(metric: Metric, value: float) -> Metric:
    return Metric(metric.name, metric.kind, metric.about, [({}, value)])


# ---- the root


def _of_supervisor(status: SupervisorStatus) -> Iterator[Metric]:
    yield _valued(
        Metric("rq_up", "gauge", "Whether the supervisor answers."), bool(status)
    )
    children = list(status.get("children") or ())[: 2 * _MOST_QUEUES]
    yield Metric(
        "rq_process_restarts_total",
        "counter",
        "Ends of a process that should have gone on, since the supervisor began.",
        [
            ({"kind": child["kind"], "process": child["name"]}, child["restarts"])
            for child in children
        ],
    )


def _of_disk(site: Site) -> Iterator[Metric]:
    room = os.statvfs(site.root.path)
    free = Metric("rq_disk_free_bytes", "gauge", "Free on the disk of the root.")
    kept = Metric(
        "rq_disk_kept_bytes", "gauge", "With less free, nothing new is accepted."
    )
    yield _valued(free, room.f_bavail * room.f_frsize)
    yield _valued(kept, site.config.min_free_bytes)


# What the rows of timers have, by metric; a row without it, of an older process, has none.
_TIMERS = (
    ("rq_timer_last_success_timestamp_seconds", "gauge",
     "When the last message that succeeded ended.", "last_success"),
    ("rq_timer_missed_total", "counter", "Fires that did not take place.", "missed"),
)  # fmt: skip


def _of_timers(rows: Sequence[TimerRow]) -> Iterator[Metric]:
    for name, kind, about, key in _TIMERS:
        seen = [(row["name"], row.get(key)) for row in rows[:_MOST_QUEUES]]
        values = [
            ({"timer": timer}, float(value))
            for timer, value in seen
            if isinstance(value, int | float)
        ]
        if values:
            yield Metric(name, kind, about, values)


# ---- queues of RQ

Answers: TypeAlias = Mapping[str, FiguresView]  # by the label of its queue
Sample: TypeAlias = tuple[
    str, float
]  # what follows the queue among the labels; its value


@dataclass(frozen=True, slots=True)
class OfQueues:
    """A metric of each queue, and its values of one."""

    name: str
    kind: str
    about: str
    of: Callable[[FiguresView], Iterable[Sample]]


def _of_state(view: FiguresView) -> Iterable[Sample]:
    counts = view["counts"]
    return [(f',state="{state}"', counts.get(state, 0)) for state in _STATES]


def _attempts(view: FiguresView) -> Iterable[Sample]:
    return [(f',outcome="{word}"', number) for word, number in view["attempts"].items()]


def _ended(view: FiguresView) -> Iterable[Sample]:
    """Give the ends by state and cause; a cause that is no word of RQ's is one, `other`."""
    ended: dict[str, int] = {}
    for state, cause, number in view["ended"]:
        word = cause if cause in _CAUSES else "other"
        labels = f',state="{state}",cause="{word}"'
        ended[labels] = ended.get(labels, 0) + number
    return ended.items()


def _workers(view: FiguresView) -> Iterable[Sample]:
    return [
        (',place="here"', view["slots_used"]),
        (',place="elsewhere"', view["elsewhere"]),
    ]


_QUEUES = (
    OfQueues("rq_queue_messages", "gauge", "Messages of a queue, by state.", _of_state),
    OfQueues("rq_queue_rows", "gauge",
             "Rows that are counted as que and have still to become messages.",
             lambda view: [("", view["rows"])]),
    OfQueues("rq_queue_oldest_due_age_seconds", "gauge",
             "For how long the message has been due that has waited longest.",
             lambda view: [("", view["oldest_due_age"])]),
    OfQueues("rq_journal_lag", "gauge",
             "Folders that are still to be made or moved as the journal says.",
             lambda view: [("", view["lag"])]),
    OfQueues("rq_workers", "gauge",
             "Slots in use here, and workers elsewhere that ask for messages.", _workers),
    OfQueues("rq_messages_accepted_total", "counter",
             "Messages accepted since the queue was started; to be parked is no end.",
             lambda view: [("", view["accepted"])]),
    OfQueues("rq_attempts_total", "counter", "Attempts that have ended, by outcome.",
             _attempts),
    OfQueues("rq_messages_ended_total", "counter",
             "Messages that have ended, by state and cause.", _ended),
)  # fmt: skip
_Numbers: TypeAlias = Callable[[FiguresView], Sequence[float]]
_HISTOGRAMS: Sequence[tuple[str, str, _Numbers]] = (
    ("rq_message_wait_seconds", "How long messages waited for an attempt once due.",
     lambda view: view["wait"]),
    ("rq_attempt_run_seconds", "How long attempts ran.", lambda view: view["run"]),
)  # fmt: skip


def _of_queues(queues: Mapping[str, FiguresView | RQError]) -> Iterator[str]:
    """Give the text of all metrics of queues; one that does not answer is not UP."""
    answering = {
        f'queue="{label(name)}"': view
        for name, view in queues.items()
        if not isinstance(view, RQError)
    }
    yield _head("rq_queue_up", "gauge", "Whether a queue is UP.")
    for name, view in queues.items():
        is_up = not isinstance(view, RQError) and view["status"] == "UP"
        yield f'rq_queue_up{{queue="{label(name)}"}} {float(is_up)}\n'
    for metric in _QUEUES:
        yield _head(metric.name, metric.kind, metric.about)
        for queue, view in answering.items():
            for labels, value in metric.of(view):
                yield f"{metric.name}{{{queue}{labels}}} {value}\n"
    for name, about, of in _HISTOGRAMS:
        yield _head(name, "histogram", about)
        for queue, view in answering.items():
            yield _histogram(name, queue, of(view))


def _histogram(name: str, queue: str, numbers: Sequence[float]) -> str:
    """Return the lines of a histogram: each bucket holds those before it, too."""
    *counts, total = numbers
    sums = list(itertools.accumulate(counts))
    lines = [
        f"{name}_bucket{{{queue},{bound}}} {number}\n"
        for bound, number in zip(_BOUNDS, sums, strict=True)
    ]
    ends = f"{name}_sum{{{queue}}} {total}\n{name}_count{{{queue}}} {sums[-1]}\n"
    return "".join(lines) + ends


# ---- the broker

_TOTALS = {
    "queues": ("rq_broker_queues", "gauge", "Queues of the broker."),
    "jobs": ("rq_broker_jobs", "gauge", "Jobs, messages and events that it holds."),
    "came": ("rq_broker_in_total", "counter", "Jobs that came since its start."),
    "went": ("rq_broker_out_total", "counter", "Deliveries since its start."),
    "clients": ("rq_broker_clients", "gauge", "Clients that are connected."),
    "blocked": ("rq_broker_blocked_clients", "gauge", "Clients that wait for a job."),
    "used_memory": ("rq_broker_memory_bytes", "gauge", "Memory that jobs take."),
    "maxmemory": (
        "rq_broker_memory_limit_bytes",
        "gauge",
        "Above it jobs are refused.",
    ),
    "commands": ("rq_broker_commands_total", "counter", "Commands since its start."),
    "nodes": ("rq_broker_nodes", "gauge", "Nodes of its cluster that it knows."),
    "linked_nodes": (
        "rq_broker_linked_nodes",
        "gauge",
        "Other nodes to which it has a link.",
    ),
    "snapshots": ("rq_broker_snapshots_total", "counter", "Snapshots since its start."),
}


def _broker(site: Site) -> list[Metric]:
    """Return what the broker tells; nothing when it is off."""
    state, replies = broker.ask(site.root, (questions.TOTALS, questions.QUEUES))
    if not state["enabled"]:
        return []
    is_up = Metric("rq_broker_up", "gauge", "Whether the broker answers.")
    if not replies:
        return [_valued(is_up, 0)]
    totals = answers.totals_in(replies[0])
    takes = Metric("rq_broker_accepts", "gauge", "Whether it takes new jobs.")
    return [
        _valued(is_up, 1),
        _valued(takes, not totals["trouble"]),
        *(_valued(Metric(*of), float(totals[name])) for name, of in _TOTALS.items()),
        *_of_broker_queues(answers.queues_in(replies[1])),
    ]


def _of_broker_queues(rows: Sequence[QueueRow]) -> Iterator[Metric]:
    # Two names that are shown alike would spoil the whole answer.
    named = {(row.dialect, row.name): row for row in rows if len(row.name) <= _LONGEST}
    longest = sorted(named.values(), key=lambda row: -(row.waits + row.handed_out))
    first = longest[:_MOST_BROKER_QUEUES]
    labels = [{"dialect": row.dialect, "queue": row.name} for row in first]
    for name, kind, about, values in (
        ("waiting", "gauge", "Jobs that wait.", [row.waits for row in first]),
        ("out", "gauge", "Jobs that are handed out or delayed.", [row.handed_out for row in first]),
        ("consumers", "gauge", "Clients that wait at it.", [row.consumers for row in first]),
        ("paused", "gauge", "Whether it is paused.", [row.paused != "none" for row in first]),
        ("oldest_seconds", "gauge", "Since when its first job waits.", [row.oldest for row in first]),
    ):  # fmt: skip
        pairs = list(zip(labels, values, strict=True))
        yield Metric(f"rq_broker_queue_{name}", kind, about, pairs)
