"""Disque's commands about queues of RQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from rq import names
from rq.access.roles import Role
from rq.broker.bridge import ids
from rq.broker.bridge.body import LEASE_SECONDS, SAME, body_of, fields_of
from rq.broker.bridge.holdings import AGAIN, DONE, LONGEST, NO_JOB, Key, Taken
from rq.broker.bridge.leases import Wanted
from rq.broker.bridge.queues import Fields
from rq.broker.bridge.request import (
    Bridged,
    Request,
    Table,
    first,
    public_name,
    refused,
)
from rq.broker.dialects import disque_jobs
from rq.broker.dialects.call import Refusal, whole
from rq.config.admin import Admin
from rq.errors import NoSuchMessage
from rq.replies import Detail, MessageRow, MessageView
from rq.resp import NIL_ARRAY, Status, Value
from rq.words.nesting import Json
from rq.words.states import State

_FROM = b"FROM"
_MOST_SHOWN = 1000  # messages, at a time
_PAUSED = {Admin.UP: "none", Admin.PAUSE: "out", Admin.DOWN: "all"}
_STATES: Mapping[str, str] = {  # of a message: the word of Disque, if it has one
    State.QUE: "queued",
    State.RUN: "active",
    State.DONE: "acked",
    State.RELAYED: "acked",
}


async def addjob(request: Request) -> Value:
    """Send a message; the answer is that it was accepted."""
    queue = request.queue(request.args[0])
    adding = disque_jobs.adding_in(request.args)
    milliseconds = adding.wait_ms
    fields = _with_options(fields_of(adding.body), adding, request.now())
    if adding.maxlen and (await request.queues.counts(queue))["que"] >= adding.maxlen:
        raise Refusal("MAXLEN Queue is already longer than the specified MAXLEN count")
    try:
        async with asyncio.timeout(milliseconds / 1000 or None):
            msg_id = await request.queues.send(queue, fields, request.principal.user)
    except TimeoutError:
        raise Refusal(
            f"NOREPL queue {queue} gave no answer in {milliseconds} ms: the message may "
            "or may not have been accepted"
        ) from None
    return Status(request.job_id(queue, msg_id))


def _with_options(
    fields: dict[str, Json], adding: disque_jobs.Adding, now: float
) -> dict[str, Json]:
    """Return the fields of a message with what the options say; Refusal when a queue of
    RQ cannot do that."""
    if adding.replicate is not None and adding.replicate > 1:
        raise Refusal("NOREPL a queue of RQ is on one host: REPLICATE can be 1")
    if adding.retry is not None and not 1 <= adding.retry <= LONGEST:
        raise Refusal(
            "ERR RETRY is how long a message of RQ can be held, 1 to "
            f"{LONGEST} seconds; QGET … EX 0 hands out at most once"
        )
    if adding.ttl is not None and adding.delay >= adding.ttl:
        raise Refusal(
            "ERR The specified DELAY is greater than TTL. Job refused since would never "
            "be delivered"
        )
    said = {
        "due": now + adding.delay if adding.delay else None,
        "deadline": now + adding.ttl if adding.ttl is not None else None,
        LEASE_SECONDS: adding.retry,
    }
    for name, value in said.items():
        if value is None:
            continue
        if name in fields:
            raise Refusal(f"ERR {name} is in the body, and an option says it too")
        fields[name] = value
        if name != LEASE_SECONDS:  # a time of day, another one when it is sent again
            fields.pop(SAME, None)
    return fields


async def getjob(request: Request) -> Value:
    """Lease messages that are due, or wait for one."""
    getting = disque_jobs.getting_in(list(request.args))
    seconds = getting.timeout / 1000
    wanted = Wanted(
        queues=request.queues_of(getting.queues),
        count=getting.count,
        waits=getting.waits,
        until=request.until(seconds) if seconds else None,
        in_turns=True,
    )
    taken = await request.take(wanted)
    if not taken:
        return NIL_ARRAY
    return [_job(request, each, getting.counters) for each in taken]


def _job(request: Request, taken: Taken, counters: bool) -> Value:
    grant, queue = taken.grant, taken.queue
    body = body_of(grant["message"], [file["name"] for file in grant["attachments"]])
    plain: list[Value] = [
        public_name(queue),
        request.job_id(queue, grant["msg_id"]),
        body,
    ]
    if counters:
        nacks = grant["message"].get("count")
        plain += ["nacks", nacks if isinstance(nacks, int) else 0]
        plain += ["additional-deliveries", max(0, grant["attempt"] - 1)]
    return plain


def _queues_from(args: Sequence[bytes]) -> Sequence[bytes]:
    """Return the words behind FROM."""
    at = next((at for at, word in enumerate(args) if word.upper() == _FROM), len(args))
    return args[at + 1 :]


# ---- jobs that a client holds


def _keys(request: Request) -> list[Key]:
    parsed = [ids.parsed(arg) for arg in request.args]
    return [(request.asker.user, *pair) for pair in parsed if pair is not None]


async def ackjob(request: Request) -> Value:
    """Messages are done; return how many were held till now."""
    return len(await request.holdings.end(request.asker, _keys(request), DONE))


async def nack(request: Request) -> Value:
    """Messages could not be worked on: let them come again."""
    return len(await request.holdings.end(request.asker, _keys(request), AGAIN))


async def working(request: Request) -> Value:
    """A message is worked on: its client holds it for a whole RETRY from now."""
    for key in _keys(request):
        return int(await request.holdings.go_on(request.asker, key))
    raise Refusal(NO_JOB)


# ---- looks at queues and messages; the owners answer


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
    wanted: Fields = {
        "state": "que",
        "limit": min(abs(count), _MOST_SHOWN),
        "order": order,
    }
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
    b"ADDJOB": Bridged(addjob, first, Role.PRODUCER),
    b"GETJOB": Bridged(getjob, _queues_from, Role.WORKER),
    b"PAUSE": Bridged(
        refused("`rq queue pause NAME` pauses a queue of RQ, for all who use it"),
        first,
        Role.VIEWER,
    ),
    b"QLEN": Bridged(qlen, first, Role.VIEWER),
    b"QPEEK": Bridged(qpeek, first, Role.VIEWER),
    b"QSTAT": Bridged(qstat, first, Role.VIEWER),
}
_NOT_OF_RQ = refused("a message of RQ can be acknowledged, or given back with NACK")
OF_JOBS: Table = {
    b"ACKJOB": Bridged(ackjob, first, Role.WORKER),
    b"FASTACK": Bridged(ackjob, first, Role.WORKER),
    b"NACK": Bridged(nack, first, Role.WORKER),
    b"WORKING": Bridged(working, first, Role.WORKER),
    b"DELJOB": Bridged(_NOT_OF_RQ, first, Role.VIEWER),
    b"ENQUEUE": Bridged(_NOT_OF_RQ, first, Role.VIEWER),
    b"DEQUEUE": Bridged(_NOT_OF_RQ, first, Role.VIEWER),
    b"SHOW": Bridged(show, first, Role.VIEWER),
}
