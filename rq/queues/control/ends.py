"""The command that waits until a message has ended."""

from __future__ import annotations

import asyncio
import functools

from rq.errors import BadInput, Busy
from rq.queues.control import message_view
from rq.queues.control.command import Context, Handler, NowOrLater, Ok, with_id
from rq.states import FINAL

MOST = 500  # messages of a queue that are waited for
LONGEST = 60.0  # seconds


def await_end(ctx: Context, arg: bytes) -> NowOrLater[str]:
    """Answer the state of a message once it has ended, or after `wait` seconds."""
    request, msg_id = with_id(arg)
    seconds = request.get("wait", LONGEST)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not isinstance(seconds, int | float) or not is_number or seconds < 0:
        raise BadInput(f"wait is not seconds from 0 up: {seconds!r:.40}")
    state = ctx.owner.spool.state_of(msg_id)
    if state in FINAL:
        return "ok", message_view.public_state(state)
    if ctx.owner.spool.events.awaited >= MOST:
        raise Busy(f"{MOST} messages are waited for already; ask again")
    return _ended(ctx, msg_id, min(seconds, LONGEST))


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
    return "ok", message_view.public_state(spool.state_of(msg_id))


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


HANDLERS: dict[str, Handler] = {"await_end": await_end}
