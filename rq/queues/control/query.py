"""The commands that look at messages, or wait for the end of one, and those about the queue
itself.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from rq import names
from rq.access.roles import Role
from rq.config import secrets
from rq.errors import BadInput, Busy, Closed, Torn
from rq.message import fieldnames
from rq.message.fields import JsonObject
from rq.proc.slices import in_slices
from rq.queues.asking import standing
from rq.queues.control import idempotency, message_list, message_view
from rq.queues.control import queue_view as details
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Reply,
    Request,
    msg_id_in,
)
from rq.queues.maintenance.retention import Retention
from rq.queues.owner.owner import Owner
from rq.queues.schedule import rounds
from rq.replies import (
    AttemptsView,
    Checked,
    Counts,
    Detail,
    EndView,
    Expired,
    FiguresView,
    MessageRow,
    MessageView,
    Problem,
    Sealed,
    Standing,
)
from rq.rpc import wire
from rq.rpc.lines.commands import MOST_ENDS, MOST_STATES
from rq.spool import check
from rq.spool.recount import Recount
from rq.words.states import FINAL, State, public

PROBLEMS = 1000  # in an answer of `check`

Item = TypeVar("Item")
# "more": the reply ends early, with as many bytes as one may have.
_Rows = Ok[list[MessageRow]] | tuple[Literal["ok"], list[MessageRow], Literal["more"]]

# ---- looking
MOST_AWAITED = 500  # messages of a queue that are waited for
LONGEST_WAIT = 60.0  # seconds


def kinds(ctx: Context, request: Request) -> Reply:
    """Tell the kind of each failure from here on, on this connection."""
    ctx.connection.tells_kinds = True
    return ["ok"]


def get_message(ctx: Context, request: Request) -> Ok[MessageView]:
    """Answer all that is known of a message."""
    msg_id = msg_id_in(request)
    try:
        return "ok", message_view.message(ctx.owner, msg_id)
    except Torn as error:
        raise Torn(f"msg couldn't be read: {error.reason}") from None


def get_attempts(ctx: Context, request: Request) -> Awaitable[Ok[AttemptsView]]:
    """Answer what is kept of the attempts on a message."""
    msg_id = msg_id_in(request)
    return _attempts(ctx.owner, msg_id)


async def _attempts(owner: Owner, msg_id: str) -> Ok[AttemptsView]:
    return "ok", await message_view.attempts(owner, msg_id)


def get_message_state(ctx: Context, request: Request) -> Ok[str]:
    msg_id = msg_id_in(request)
    state = ctx.owner.spool.state_of(msg_id)
    if state is State.PREP and fieldnames.PREPARER in request:  # before a long upload
        preparer = idempotency.preparer_in(ctx.connection.asker, request)
        preparer.check_message(ctx.owner, msg_id)
    return "ok", public(state)


def get_message_status(ctx: Context, request: Request) -> Ok[Standing]:
    msg_id = msg_id_in(request)
    return "ok", message_view.status(ctx.owner, msg_id)


def get_ends(ctx: Context, request: Request) -> Ok[Mapping[str, EndView]]:
    """Answer what became of messages; one that is not there is gone. `running`: of those
    that run what was said last, too."""
    running = request.get("running") is True
    msg_ids = request.get("msg_ids")
    if not isinstance(msg_ids, list) or len(msg_ids) > MOST_ENDS:
        raise BadInput(f"'msg_ids' is no list of {MOST_ENDS} messages at most")
    checked_ids = [names.msg_id(msg_id) for msg_id in msg_ids]
    return "ok", {
        msg_id: message_view.end(ctx.owner, msg_id, running=running)
        for msg_id in checked_ids
    }


def ends(ctx: Context, request: Request) -> Awaitable[Ok[Mapping[str, str]]]:
    """Answer how messages stand for which messages of another queue wait; that queue gets
    a hint when they change."""
    msg_ids = request.get("msg_ids")
    if not isinstance(msg_ids, list) or len(msg_ids) > rounds.AT_ONCE:
        raise BadInput(f"'msg_ids' is no list of {rounds.AT_ONCE} messages at most")
    queue = names.queue_name(request.get("queue"))
    return _standings(ctx.owner, list(map(names.msg_id, msg_ids)), queue)


async def _standings(
    owner: Owner, ids: Sequence[str], queue: str
) -> Ok[Mapping[str, str]]:
    return "ok", await standing.of_all(owner, ids, queue)


def get_states(ctx: Context, request: Request) -> Ok[Mapping[str, str]]:
    """Answer where messages are, as one word each: see `message_view.standing`."""
    deep, follow = request.get("deep") is True, request.get("follow") is True
    msg_ids = request.get("msg_ids")
    if not isinstance(msg_ids, list) or len(msg_ids) > MOST_STATES:
        raise BadInput(f"'msg_ids' is no list of {MOST_STATES} messages at most")
    checked_ids = [names.msg_id(msg_id) for msg_id in msg_ids]
    return "ok", {
        msg_id: message_view.standing(ctx.owner, msg_id, deep=deep, follow=follow)
        for msg_id in checked_ids
    }


def num_messages(ctx: Context, request: Request) -> Counts:
    return details.counts(ctx.owner)


def messages(ctx: Context, request: Request) -> Awaitable[Reply]:
    """Answer the ids in a state, as the ancestor did."""
    sees_all = ctx.connection.asker.principal.may(Role.ADMIN)
    return message_list.messages(ctx.owner, request, sees_all=sees_all)


def listed(ctx: Context, request: Request) -> Awaitable[_Rows]:
    """Answer messages of a state with their main fields."""
    is_for_admin = not request.get(message_list.BELOW_ADMIN)
    sees_all = is_for_admin and ctx.connection.asker.principal.may(Role.ADMIN)
    return _listed(ctx.owner, request, sees_all=sees_all)


async def _listed(owner: Owner, request: JsonObject, *, sees_all: bool) -> _Rows:
    rows, more = await message_list.listed(owner, request, sees_all=sees_all)
    return ("ok", rows, "more") if more else ("ok", rows)


# ---- the queue itself


def ping(ctx: Context, request: Request) -> Reply:
    return ["pong"]


def uptime(ctx: Context, request: Request) -> Reply:
    return [int(time.monotonic() - ctx.owner.began)]


def config(ctx: Context, request: Request) -> Ok[Mapping[str, object]]:
    """The config in force; secrets of `env_vars` are for admins."""
    settings = ctx.owner.config.to_json()
    sees_all = ctx.connection.asker.principal.may(Role.ADMIN)
    return "ok", settings if sees_all else secrets.masked(settings)


def status(ctx: Context, request: Request) -> Reply:
    ctx.owner.admission.forget_admin()
    return [ctx.owner.status]


def figures(ctx: Context, request: Request) -> Ok[FiguresView]:
    """Answer what monitors measure."""
    return "ok", details.figures(ctx.owner)


def detail(ctx: Context, request: Request) -> Ok[Detail]:
    """Answer what an operator wants to know of the queue."""
    ctx.owner.admission.forget_admin()
    return "ok", details.detail(ctx.owner, ctx.stall, ctx.checkpoints.seq)


def shutdown(ctx: Context, request: Request) -> Reply:
    ctx.stop()
    return ["ok"]


def mind(ctx: Context, request: Request) -> Ok[int]:
    """Treat the client as our parent: when it hangs up, the queue stops."""
    ctx.connection.minded = True
    return "ok", os.getpid()


def wake(ctx: Context, request: Request) -> Reply | Awaitable[Reply]:
    """Look at the config, the admin files and new/ at once; or hear that messages of other
    queues have changed, for which messages here wait."""
    if (ends := request.get("ends")) is None:
        return _woken(ctx)
    if isinstance(ends, list):
        ctx.asker.hinted([str(place) for place in ends])
    return ["ok"]


async def _woken(ctx: Context) -> Reply:
    await ctx.look()
    return ["ok"]


def seal(ctx: Context, request: Request) -> Awaitable[Ok[Sealed]]:
    """Make history of all events so far; answer up to which."""
    return _sealed(ctx)


async def _sealed(ctx: Context) -> Ok[Sealed]:
    sealing = ctx.seal()
    seq = ctx.owner.spool.durable_seq
    if sealing is not None:
        await asyncio.wrap_future(sealing)
    return "ok", {"sealed": sealing is not None, "seq": seq}


def expire(ctx: Context, request: Request) -> Awaitable[Ok[Expired]]:
    """Remove messages that have ended and are beyond the limits."""
    return _expired(ctx.retention, request)


async def _expired(retention: Retention, wanted: JsonObject) -> Ok[Expired]:
    return "ok", await retention.answer(wanted)


def checked(ctx: Context, request: Request) -> Awaitable[Ok[Checked]]:
    """Compare journal, folders and counters. With `fix` true what is counted wrong is
    counted again first; `only` "counters" looks at nothing else."""
    whole = request.get("only") != "counters"
    return _checked(ctx, fix=request.get("fix") is True, whole=whole)


async def _checked(ctx: Context, *, fix: bool, whole: bool) -> Ok[Checked]:
    rows: list[Problem] = []
    if fix:
        rows += map(_mended, await ctx.counters.correct())
    if whole:
        rows += await _compared(ctx.owner)
    elif not fix:
        rows += map(_miscounted, await ctx.counters.wrong())
    return "ok", {"problems": rows}


def _mended(recounted: Recount) -> Problem:
    return {"kind": "mended", "subject": recounted.state, "text": recounted.text}


def _miscounted(recounted: Recount) -> Problem:
    return {"kind": "count", "subject": recounted.state, "text": recounted.advice}


async def _compared(owner: Owner) -> list[Problem]:
    """Look at all that lies on disk."""
    aside = functools.partial(owner.loop.run_in_executor, owner.pools.looks)

    async def slices(items: Iterable[Item], act: Callable[[Item], object]) -> None:
        def unless_stopping(item: Item) -> None:
            if owner.admission.stopping:
                raise Closed("the queue is stopping")
            act(item)

        await in_slices(items, unless_stopping, owner.wake)

    problems = await check.check_live(owner.spool, aside, slices)
    rows: list[Problem] = [problem.to_json() for problem in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        text = f"{len(problems) - PROBLEMS} more problems; `rq check` of a stopped queue names all"
        rows.append({"kind": "more", "subject": owner.name, "text": text})
    return rows


# ---- waiting for an end


def await_end(ctx: Context, request: Request) -> NowOrLater[str]:
    """Answer the state of a message once it has ended, or after `wait` seconds."""
    msg_id = msg_id_in(request)
    seconds = request.get("wait", LONGEST_WAIT)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not isinstance(seconds, int | float) or not is_number or seconds < 0:
        raise BadInput(f"wait is not seconds from 0 up: {seconds!r:.40}")
    state = ctx.owner.spool.state_of(msg_id)
    if state in FINAL:
        return "ok", public(state)
    if ctx.owner.spool.events.awaited >= MOST_AWAITED:
        raise Busy(f"{MOST_AWAITED} messages are waited for already; ask again")
    return _ended(ctx, msg_id, min(seconds, LONGEST_WAIT))


async def _ended(ctx: Context, msg_id: str, seconds: float) -> Ok[str]:
    spool = ctx.owner.spool
    ended = ctx.owner.loop.create_future()
    call = functools.partial(_end, ended)
    spool.events.await_end(msg_id, call)
    ctx.connection.if_lost(call)
    ctx.connection.listen()
    try:
        with ctx.connections.waiting(ctx.connection):
            await asyncio.wait([ended], timeout=seconds)
    finally:
        spool.events.forget_end(msg_id, call)
    return "ok", public(spool.state_of(msg_id))


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


HANDLERS: dict[str, Handler] = {
    wire.KINDS: kinds,
    "ping": ping,
    "uptime": uptime,
    "config": config,
    "status": status,
    "detail": detail,
    "figures": figures,
    "shutdown": shutdown,
    "mind": mind,
    "wake": wake,
    "get_message": get_message,
    "get_attempts": get_attempts,
    "get_message_state": get_message_state,
    "get_message_status": get_message_status,
    "get_ends": get_ends,
    "ends": ends,
    "get_states": get_states,
    "num_messages": num_messages,
    "messages": messages,
    "list": listed,
    "seal": seal,
    "expire": expire,
    "check": checked,
    "await_end": await_end,
}
