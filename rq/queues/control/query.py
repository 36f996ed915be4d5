"""The commands that look at messages, and those about the queue itself."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rq import wire
from rq.access.roles import Role
from rq.config import secrets
from rq.errors import Closed, Torn
from rq.queues.concurrency.tasks import in_slices
from rq.queues.control import message_list, message_view
from rq.queues.control import queue_view as details
from rq.queues.control.verbs import Command, Context, object_in, with_id
from rq.queues.maintenance.retention import Retention
from rq.queues.owner.owner import Owner
from rq.spool import check

PROBLEMS = 1000  # in an answer of `check`

# ---- looking


def kinds(ctx: Context, arg: bytes) -> Any:
    """Tell the kind of each failure from here on, on this connection."""
    ctx.connection.tells_kinds = True
    return ["ok"]


def get_message(ctx: Context, arg: bytes) -> Any:
    """Answer all that is known of a message."""
    _, msg_id = with_id(arg)
    try:
        return ["ok", message_view.message(ctx.owner, msg_id)]
    except Torn as error:
        raise Torn(f"msg couldn't be read: {error.reason}") from None


def get_message_state(ctx: Context, arg: bytes) -> Any:
    _, msg_id = with_id(arg)
    return ["ok", message_view.public_state(ctx.owner.spool.state_of(msg_id))]


def get_message_status(ctx: Context, arg: bytes) -> Any:
    _, msg_id = with_id(arg)
    return ["ok", message_view.status(ctx.owner, msg_id)]


def num_messages(ctx: Context, arg: bytes) -> Any:
    return details.counts(ctx.owner)


def messages(ctx: Context, arg: bytes) -> Any:
    """Answer the ids in a state, as the ancestor did."""
    return message_list.messages(ctx.owner, object_in(arg))


def listed(ctx: Context, arg: bytes) -> Any:
    """Answer messages of a state with their main fields."""
    return _listed(ctx.owner, object_in(arg))


async def _listed(owner: Owner, request: Mapping[str, Any]) -> Any:
    rows, more = await message_list.listed(owner, request)
    return ["ok", rows, "more"] if more else ["ok", rows]


# ---- the queue itself


def ping(ctx: Context, arg: bytes) -> Any:
    return ["pong"]


def uptime(ctx: Context, arg: bytes) -> Any:
    return [int(time.monotonic() - ctx.owner.began)]


def config(ctx: Context, arg: bytes) -> Any:
    """The config in force; secrets of `env_vars` are for admins."""
    settings = ctx.owner.config.to_json()
    sees_all = ctx.connection.asker.principal.may(Role.ADMIN)
    return ["ok", settings if sees_all else secrets.masked(settings)]


def status(ctx: Context, arg: bytes) -> Any:
    ctx.owner.admission.forget_admin()
    return [ctx.owner.status]


def detail(ctx: Context, arg: bytes) -> Any:
    """Answer what an operator wants to know of the queue."""
    ctx.owner.admission.forget_admin()
    return ["ok", details.detail(ctx.owner, ctx.stall, ctx.checkpoints.seq)]


def shutdown(ctx: Context, arg: bytes) -> Any:
    ctx.stop()
    return ["ok"]


def mind(ctx: Context, arg: bytes) -> Any:
    """Treat the client as our parent: when it hangs up, the queue stops."""
    ctx.connection.minded = True
    return ["ok", os.getpid()]


def wake(ctx: Context, arg: bytes) -> Any:
    """Look at the config, the admin files and new/ at once."""
    return _woken(ctx)


async def _woken(ctx: Context) -> Any:
    await ctx.look()
    return ["ok"]


def seal(ctx: Context, arg: bytes) -> Any:
    """Make history of all events so far; answer up to which."""
    return _sealed(ctx)


async def _sealed(ctx: Context) -> Any:
    sealing = ctx.seal()
    seq = ctx.owner.spool.durable_seq
    if sealing is not None:
        await asyncio.wrap_future(sealing)
    return ["ok", {"sealed": sealing is not None, "seq": seq}]


def expire(ctx: Context, arg: bytes) -> Any:
    """Remove messages that have ended and are beyond the limits."""
    return _expired(ctx.retention, object_in(arg) if arg.strip() else {})


async def _expired(retention: Retention, wanted: Mapping[str, Any]) -> Any:
    return ["ok", await retention.answer(wanted)]


def checked(ctx: Context, arg: bytes) -> Any:
    """Compare journal, folders and counters."""
    return _checked(ctx.owner)


async def _checked(owner: Owner) -> Any:
    aside = functools.partial(owner.loop.run_in_executor, owner.pools.looks)

    async def slices(items: Iterable[Any], act: Callable[[Any], Any]) -> None:
        def unless_stopping(item: Any) -> None:
            if owner.admission.stopping:
                raise Closed("the queue is stopping")
            act(item)

        await in_slices(items, unless_stopping, owner.wake)

    problems = await check.check_live(owner.spool, aside, slices)
    rows = [problem.to_json() for problem in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        text = f"{len(problems) - PROBLEMS} more problems; `rq check` of a stopped queue names all"
        rows.append(check.Problem("more", owner.name, text).to_json())
    return ["ok", {"problems": rows}]


COMMANDS: dict[str, Command] = {
    wire.KINDS: Command(kinds, Role.VIEWER, always=True),
    "ping": Command(ping, Role.VIEWER, always=True),
    "uptime": Command(uptime, Role.VIEWER, always=True),
    "config": Command(config, Role.VIEWER, always=True),
    "status": Command(status, Role.VIEWER, always=True),
    "detail": Command(detail, Role.VIEWER, always=True),
    "shutdown": Command(shutdown, Role.ADMIN, always=True),
    "mind": Command(mind, Role.ADMIN, always=True, own=True),
    "wake": Command(wake, Role.PRODUCER, always=True),
    "get_message": Command(get_message, Role.VIEWER),
    "get_message_state": Command(get_message_state, Role.VIEWER),
    "get_message_status": Command(get_message_status, Role.VIEWER),
    "num_messages": Command(num_messages, Role.VIEWER),
    "messages": Command(messages, Role.VIEWER),
    "list": Command(listed, Role.VIEWER),
    "seal": Command(seal, Role.OPERATOR, down=True),
    "expire": Command(expire, Role.OPERATOR),
    "check": Command(checked, Role.OPERATOR, down=True),
}
