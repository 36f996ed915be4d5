"""The commands that ask for leases, and how long their holder may wait for them; and the one
that shows who holds what.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence

from rq.message import limits
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.queues import arguments
from rq.queues.asking import after_file
from rq.queues.attempts.lease import Lease
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Request,
    asker,
)
from rq.queues.leases.desk import new_waiter
from rq.queues.leases.grants import Granted, Wanted
from rq.queues.owner.owner import Owner
from rq.replies import Grant, GrantsView, LeaseRow, LeasesView

MOST = 1000  # leases in one request
LONGEST, LONGEST_WAIT = 86_400.0, 60.0  # seconds
LABEL, REQUEST, VERSION = 64, 128, 64  # characters
MOST_SLOTS = 1_000_000
PAGE = 1000  # leases in one reply
_CURSOR = 64  # characters


def lease(ctx: Context, request: Request) -> NowOrLater[GrantsView]:
    """Lease what is due; with `wait`, as soon as something is. Many messages may have to
    be looked at that wait for others: those who ask meanwhile have their turns."""
    wanted = _wanted(ctx, request)
    wait = arguments.seconds(request, "wait", 0.0, 0.0, LONGEST_WAIT)
    key = arguments.visible(request, "request", REQUEST)
    _hear(ctx, wanted.by, request)
    granted = ctx.leases.take(wanted, key) if wanted.count else []
    news = ctx.leases.cancelled(wanted.by)
    looks_on = bool(wanted.count) and ctx.leases.grants.looks_on
    if (wait or looks_on) and not granted and not news:
        return _when_due(ctx, wanted, wait, key)
    ctx.connection.if_lost(functools.partial(ctx.leases.give_back, granted))
    if any(grant.message.after for grant in granted):
        return _with_others(ctx, granted, news)
    return "ok", _grants(ctx, granted, news)


async def _when_due(
    ctx: Context, wanted: Wanted, seconds: float, key: str
) -> Ok[GrantsView]:
    desk, waiter = ctx.leases, new_waiter(wanted)
    ctx.connection.if_lost(waiter.lose)
    ctx.connection.listen()
    news = desk.cancelled(wanted.by)  # since this was asked, a turn ago
    if not news:
        with ctx.connections.waiting(ctx.connection):
            await desk.wait(waiter, seconds)
        news = {} if waiter.lost else desk.cancelled(wanted.by)
    granted = waiter.granted
    if waiter.lost:
        desk.give_back(granted)
        return "ok", _grants(ctx, [], {})
    ctx.connection.if_lost(functools.partial(desk.give_back, granted))
    desk.remember(wanted.by, key, granted)
    return await _with_others(ctx, granted, news)


async def _with_others(
    ctx: Context, granted: Sequence[Granted], news: dict[str, str]
) -> Ok[GrantsView]:
    """Answer what was handed out, and what is told of those that it has waited for."""
    reply, owner = _grants(ctx, granted, news), ctx.owner
    waited = [grant.message for grant in granted if grant.message.after]
    if waited:
        run, pool = owner.loop.run_in_executor, owner.pools.looks
        build = after_file.for_leases
        rows_of = await run(pool, build, owner.root, owner.main, waited)
        for grant in reply["leases"]:
            if rows := rows_of.get(grant["msg_id"]):
                grant["after"] = rows
    return "ok", reply


def _wanted(ctx: Context, request: JsonObject) -> Wanted:
    default = ctx.leases.grants.seconds
    return Wanted(
        by=_by(ctx, request),
        count=arguments.whole(request, "count", 1, MOST),
        seconds=arguments.seconds(request, "seconds", default, 1.0, LONGEST),
    )


def _by(ctx: Context, request: JsonObject) -> str:
    """Return who asks: the name of a user, and a label of his own."""
    label = arguments.visible(request, "label", LABEL)
    who = asker(ctx, request)
    return f"{who}/{label}" if label else who


def _hear(ctx: Context, by: str, request: JsonObject) -> None:
    ctx.owner.remote_workers.hear(
        by,
        arguments.whole(request, "slots", None, MOST_SLOTS),
        arguments.visible(request, "version", VERSION),
        arguments.visible(request, "host", LABEL),
    )


def _grants(
    ctx: Context, granted: Sequence[Granted], news: dict[str, str]
) -> GrantsView:
    owner = ctx.owner
    reply: GrantsView = {
        "leases": [_grant(owner, grant) for grant in granted],
        "why": None,
        "base_url": owner.main.base_url,
        "env": owner.main.env,
    }
    if owner.config.user:
        reply["user"] = owner.config.user
    if news:
        reply["cancels"] = news
    if not granted:
        reply["why"] = ctx.leases.grants.why_none() or "nothing is due"
    return reply


def _grant(owner: Owner, grant: Granted) -> Grant:
    message, pull = grant.message, owner.config.pull
    fields = message.to_json()
    fields.pop("attachments", None)
    files = message.attachments.items()
    fetches = pull is None or pull["fetch"]
    return {
        "token": grant.token,
        "msg_id": message.msg_id,
        "full_id": owner.full_id(message.msg_id),
        "attempt": message.attempt,
        "seconds": grant.lease.seconds,
        "message": fields,
        "attachments": [
            {"name": name, "size": file.size, "sha256": file.sha256}
            for name, file in files
        ],
        "limits": _limits(owner, message, fetches),
    }


def _limits(owner: Owner, message: Message, fetches: bool) -> dict[str, bool | float]:
    """Return what a holder has to keep to; `grace` alone is nothing to keep to."""
    base, own = owner.settings.limits, message.limits
    given: dict[str, bool | float] = {}
    if base.is_any or own:
        given.update(limits.of(base, own).given())
    return given if fetches else {**given, "fetch": False}


# ---- who holds what


def leases(ctx: Context, request: Request) -> Ok[LeasesView]:
    """Answer who holds what, in the order of the messages, and who asks for leases."""
    limit = arguments.whole(request, "limit", PAGE, PAGE) or PAGE
    after = arguments.visible(request, "cursor", _CURSOR)
    out, desk = ctx.owner.leases, ctx.leases
    ids = (lease.msg_id for lease in out if lease.msg_id > after)
    page = heapq.nsmallest(limit + 1, ids)
    held = (out.of(msg_id) for msg_id in page[:limit])
    return "ok", {
        "leases": [_row(ctx.owner, lease) for lease in held if lease is not None],
        "count": len(out),
        "max": desk.grants.most,
        "next": page[limit - 1] if len(page) > limit else None,
        "workers": ctx.owner.remote_workers.rows(),
        "pull": ctx.owner.config.pull,
    }


def _row(owner: Owner, lease: Lease) -> LeaseRow:
    return {
        "msg_id": lease.msg_id,
        "attempt": lease.held.attempt,
        "by": lease.by,
        "since": lease.held.since,
        "until": owner.spool.clock() + lease.deadline - owner.leases.now(),
        "seconds": lease.seconds,
        "started": lease.started,
        "text": lease.text,
        "fraction": lease.fraction,
    }


HANDLERS: dict[str, Handler] = {
    "lease": lease,
    "leases": leases,
}
