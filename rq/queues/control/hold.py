"""The commands that let a message wait, and go on: hold, release."""

from __future__ import annotations

from rq.message import fields
from rq.queues.control.change import named
from rq.queues.control.command import Context, Handler, Ok, asker


def hold_message(ctx: Context, arg: bytes) -> Ok[str]:
    """Let a message in que wait until somebody releases it."""
    request, msg_id = named(ctx, arg)
    why = fields.why(request.get("why"))
    held = ctx.owner.hold(msg_id, asker(ctx, request), why)
    return "ok", "msg is held" if held else "msg is held already"


def release_message(ctx: Context, arg: bytes) -> Ok[str]:
    """Let a message go on that was held."""
    request, msg_id = named(ctx, arg)
    released = ctx.owner.release(msg_id, asker(ctx, request))
    return "ok", "msg is released" if released else "msg is not held"


HANDLERS: dict[str, Handler] = {
    "hold_message": hold_message,
    "release_message": release_message,
}
