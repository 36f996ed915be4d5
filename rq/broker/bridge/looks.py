"""Disque's commands that look at queues of RQ and their messages; the owners answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from rq import names
from rq.access.roles import Role
from rq.broker.bridge import ids
from rq.broker.bridge.body import LEASE_SECONDS, body_of
from rq.broker.bridge.queues import Fields
from rq.broker.bridge.request import Bridged, Request, Table, first, public_name
from rq.broker.dialects.call import Refusal, whole
from rq.config.admin import Admin
from rq.errors import NoSuchMessage
from rq.replies import Detail, MessageRow, MessageView
from rq.resp import Value
from rq.words.nesting import Json
from rq.words.states import State

MOST = 1000  # messages that are shown at a time
_PAUSED = {Admin.UP: "none", Admin.PAUSE: "out", Admin.DOWN: "all"}
_STATES: Mapping[str, str] = {  # of a message: the word of Disque, if it has one
    State.QUE: "queued",
    State.RUN: "active",
    State.DONE: "acked",
    State.RELAYED: "acked",
}


async def qlen(request: Request) -> Value:
    """How many messages wait, those that are not due yet among them."""
    return (await request.queues.counts(request.queue(request.args[0])))["que"]


async def qpeek(request: Request) -> Value:
    """Show the messages that run next; the newest ones if the number is below 0."""
    name, number = request.args
    queue, count = request.queue(name), whole(number)
    if count is None:
        raise Refusal("ERR value is not an integer or out of range")
    if not count:
        return []
    order = "next" if count > 0 else "newest"
    wanted: Fields = {"state": "que", "limit": min(abs(count), MOST), "order": order}
    rows = cast(Sequence[MessageRow], await request.look(queue, "list", wanted))
    return [
        [
            public_name(queue),
            request.job_id(queue, row["msg_id"]),
            body_of(_params(row)),
        ]
        for row in rows
        if ids.is_sayable(row["msg_id"])
    ]


def _params(row: MessageRow) -> Mapping[str, Json]:
    """Return the params in a row: others of a sender's fields are not in it."""
    return {
        name: value
        for name, value in cast(Mapping[str, Json], row).items()
        if name.startswith("param")
    }


async def qstat(request: Request) -> Value:
    """Tell of a queue; what came and went did so in the last hour."""
    queue = request.queue(request.args[0])
    detail = cast(Detail, await request.look(queue, "detail", {}))
    series = detail["series"]
    came, went = _column(series, "accepted"), _column(series, "done")
    went = [done + err for done, err in zip(went, _column(series, "err"), strict=True)]
    busy = [at for at, both in enumerate(zip(came, went, strict=True)) if any(both)]
    steps = len(came) - 1 - busy[-1] if busy else len(came)
    step = series["step"]
    facts: Mapping[str, Value] = {
        "name": public_name(queue),
        "len": detail["counts"]["que"],
        "age": detail["uptime"],
        "idle": steps * (step if isinstance(step, int) else 0),
        "blocked": request.leases.waiting(queue),
        "import-from": [],
        "import-rate": 0,
        "jobs-in": sum(came),
        "jobs-out": sum(went),
        "pause": _PAUSED.get(Admin(detail["admin"]), "none"),
    }
    return [value for pair in facts.items() for value in pair]


def _column(series: Mapping[str, int | Sequence[int]], name: str) -> Sequence[int]:
    column = series[name]
    return [] if isinstance(column, int) else column


async def show(request: Request) -> Value:
    """Tell of a message."""
    pair = ids.parsed(request.args[0])
    queue = request.queues.named(pair[0]) if pair is not None else None
    if pair is None or queue is None:
        return None
    request.queue(public_name(queue))
    msg_id = pair[1]
    try:
        view = await request.look(queue, "get_message", {"msg_id": msg_id})
    except NoSuchMessage:
        return None
    facts = _facts(request, queue, msg_id, cast(Mapping[str, Json], view))
    return [value for pair in facts.items() for value in pair]


def _facts(
    request: Request, queue: str, msg_id: str, view: Mapping[str, Json]
) -> Mapping[str, Value]:
    now = request.now()
    number = _numbers(view)
    state, due = str(view["state"]), number("due", now)
    waits = state == State.QUE and due > now
    within = int((due - now) * 1000) if waits else None
    return {
        "id": request.job_id(queue, msg_id),
        "queue": public_name(queue),
        "state": "active" if waits else _STATES.get(state, state),
        "repl": 1,
        "ttl": max(0, int(number("deadline", now) - now)),
        "ctime": int(names.created(msg_id) * 1000) * 1_000_000,
        "delay": max(0, int(due - names.created(msg_id))),
        "retry": int(number(LEASE_SECONDS, 0)),
        "nacks": int(number("count", 0)),
        "additional-deliveries": max(0, int(number("attempt", 0)) - 1),
        "nodes-delivered": [request.node_id],
        "nodes-confirmed": [],
        "next-requeue-within": within,
        "next-awake-within": within,
        "body": body_of(_sent(view)),
    }


def _numbers(view: Mapping[str, Json]) -> Callable[[str, float], float]:
    def number(name: str, default: float) -> float:
        value = view.get(name)
        return float(value) if isinstance(value, int | float) else default

    return number


def _sent(view: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what a message was sent with, without what RQ shows of it."""
    own = view.keys() - MessageView.__annotations__.keys()
    return {name: view[name] for name in view if name in own}


TABLE: Table = {
    b"QLEN": Bridged(qlen, first, Role.VIEWER),
    b"QPEEK": Bridged(qpeek, first, Role.VIEWER),
    b"QSTAT": Bridged(qstat, first, Role.VIEWER),
}
OF_JOBS: Table = {b"SHOW": Bridged(show, first, Role.VIEWER)}
