"""The command that accepts many messages by one request, each for itself."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from rq import wire
from rq.errors import BadInput, BadMessage, RQError
from rq.nesting import Json
from rq.queues.concurrency.tasks import in_slices
from rq.queues.control import idempotency
from rq.queues.control.command import Context, Handler, Ok, object_in
from rq.spool import Accepted

MOST = 5000  # messages of a request

# `["ok", ID]`, `["ok", ID, "joined"]`, or as a request for one message would have failed.
_Row = idempotency.OkOrJoined | list[str]


def create_messages(ctx: Context, arg: bytes) -> Awaitable[Ok[list[_Row]]]:
    """Accept messages; answer for each its id, or why it was not accepted."""
    wanted = object_in(arg).get("messages")
    if not isinstance(wanted, list) or len(wanted) > MOST:
        raise BadInput(f"lacking 'messages', a list of at most {MOST}")
    ctx.owner.admission.check_open()
    return _all(ctx, wanted)


async def _all(ctx: Context, wanted: Sequence[Json]) -> Ok[list[_Row]]:
    """Accept messages a few at a time; all share one sync, that of the reply."""
    owner, rows = ctx.owner, list[_Row]()

    def between() -> None:
        ctx.pace.requested()  # each is like a request: folders wait until all are taken
        if owner.spool.group_full:
            owner.wake()

    await in_slices(wanted, lambda fields: rows.append(_row(ctx, fields)), between)
    between()
    return "ok", rows


def _row(ctx: Context, fields: Json) -> _Row:
    try:
        accepted = _accepted(ctx, fields)
        return idempotency.answered(accepted, accepted.msg_id)
    except RQError as error:
        return wire.failure(error, with_kind=True)


def _accepted(ctx: Context, fields: Json) -> Accepted:
    if not isinstance(fields, dict):
        raise BadMessage("a message is a JSON object")
    return idempotency.created(ctx.owner, ctx.connection.asker, fields)


HANDLERS: dict[str, Handler] = {"create_messages": create_messages}
