"""What monitors ask: `/metrics`, which Prometheus reads, and `/livez` and `/readyz`.

The metrics tell of so many queues at most, so that names that strangers choose cannot fill
the memory of Prometheus. The two others need no login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from falcon.asgi import App, Request, Response

from rq.access.roles import Role
from rq.rpc.broker import answers, questions
from rq.rpc.broker.rows import QueueRow
from rq.web.pages import broker, facts
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.states import Child

KIND = "text/plain; version=0.0.4; charset=utf-8"
_MOST_QUEUES = 200  # of RQ, and of the broker those with most jobs
_LONGEST = 200  # characters of a name; a longer one is left out
_PATIENCE = 4.0  # seconds in which all have to answer; most monitors wait five
_STATES = ("prep", "que", "run", "done", "relayed", "err", "errack")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, what it counts, and its values by labels."""

    name: str
    kind: str  # gauge or counter
    about: str
    values: Sequence[tuple[Mapping[str, str], float]] = field(default_factory=list)


def add_routes(routes: Routes, site: Site) -> None:
    """Add `/metrics`."""

    async def on_get(req: Request, resp: Response) -> None:
        (status, rows), of_broker = await asyncio.gather(
            facts.all_of_them(site, _PATIENCE), asyncio.to_thread(_broker, site)
        )
        is_up = Metric("rq_up", "gauge", "Whether the supervisor answers.")
        metrics = [_valued(is_up, bool(status)), *_of_queues(rows), *of_broker]
        resp.content_type = KIND
        resp.text = text(metrics)

    routes.get("/metrics", on_get, Role.VIEWER)


def text(metrics: Iterable[Metric]) -> str:
    r"""Return metrics in the format of Prometheus.

    >>> print(text([Metric("a", "gauge", "A.", [({"q": 'x"\n'}, 1234567)])]), end="")
    # HELP a A.
    # TYPE a gauge
    a{q="x\"\n"} 1234567.0
    """
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.about}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.values:
            pairs = (f'{name}="{label(word)}"' for name, word in labels.items())
            inside = ",".join(pairs)
            lines.append(
                f"{metric.name}{f'{{{inside}}}' if inside else ''} {float(value)}"
            )
    return "".join(f"{line}\n" for line in lines)


def label(word: str) -> str:
    """Return the value of a label as it stands between quotes."""
    return word.translate(_ESCAPES)


def _valued(metric: Metric, value: float) -> Metric:
    return Metric(metric.name, metric.kind, metric.about, [({}, value)])


# ---- queues of RQ


def _of_queues(rows: Sequence[facts.QueueRow]) -> Iterator[Metric]:
    answering = [row for row in rows if row["answers"]][:_MOST_QUEUES]
    yield _by_state(answering)
    yield _by_queue(
        "rq_queue_rows",
        "Rows that are counted as que and have still to become messages.",
        {row["name"]: row.get("rows", 0) for row in answering},
    )
    yield _by_queue(
        "rq_queue_up",
        "Whether a queue is UP.",
        {row["name"]: row["status"] == "UP" for row in rows[:_MOST_QUEUES]},
    )
    yield _by_queue(
        "rq_queue_oldest_due_age_seconds",
        "For how long the message has been due that has waited longest.",
        {row["name"]: row["oldest_due_age"] or 0 for row in answering},
    )


def _by_state(answering: Sequence[facts.QueueRow]) -> Metric:
    return Metric(
        "rq_queue_messages",
        "gauge",
        "Messages of a queue, by state.",
        [
            ({"queue": row["name"], "state": state}, row["counts"].get(state, 0))
            for row in answering
            for state in _STATES
        ],
    )


def _by_queue(name: str, about: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge of queues, by their names."""
    labelled = [({"queue": queue}, value) for queue, value in values.items()]
    return Metric(name, "gauge", about, labelled)


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
    first = longest[:_MOST_QUEUES]
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


# ---- /livez and /readyz


def install(app: App[Request, Response], site: Site) -> None:
    """Add both, below the relative root and beside it."""

    async def livez(req: Request, resp: Response) -> None:
        _say_text(resp, 200, "ok")

    async def readyz(req: Request, resp: Response) -> None:
        problem = await _problem(site)
        _say_text(resp, 503 if problem else 200, problem or "ok")

    for prefix in {"", site.prefix}:
        app.add_route(f"{prefix}/livez", SimpleNamespace(on_get=livez, on_head=livez))
        app.add_route(
            f"{prefix}/readyz", SimpleNamespace(on_get=readyz, on_head=readyz)
        )


def _say_text(resp: Response, status: int, text: str) -> None:
    resp.status = status
    resp.content_type = "text/plain; charset=utf-8"
    resp.cache_control = ["no-store"]
    resp.text = text + "\n"


async def _problem(site: Site) -> str:
    """Return why messages cannot be taken now, or cannot run; "" when they can.

    Strangers read it, so it names queues and says no more than it must. A queue that an
    operator took down or paused is as it should be, and messages that failed are no
    reason to send the next ones elsewhere.
    """
    status, rows = await facts.all_of_them(site, _PATIENCE)
    if not status:
        return "the supervisor does not answer"
    starting = sum(row["status"] == Child.STARTING for row in rows)
    if starting:
        return f"{starting} of {len(rows)} queues are starting"
    for row in rows:
        for trouble in facts.queue_trouble(row):
            if trouble.stops:
                closed = row["closed_reason"]
                why = f": {closed}" if closed and row["answers"] else ""
                return f"queue {trouble.who} {trouble.said}{why}"
    return ""
