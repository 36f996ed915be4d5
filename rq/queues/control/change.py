"""The commands that change what becomes of a message: delete, cancel, retry, run, move."""

from __future__ import annotations

from collections.abc import Awaitable, Container, Mapping
from typing import Literal, TypedDict

from rq import filter as filters
from rq.access.roles import Role as Access
from rq.config import secrets
from rq.errors import BadInput, Changed, Closed, WrongState
from rq.filter import Filter
from rq.message import fields
from rq.nesting import Json
from rq.queues.bulk import actions, retry, selection
from rq.queues.bulk.actions import Action, Deed, Hands
from rq.queues.concurrency import in_slices
from rq.queues.control import message_list, message_view
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    asker,
    object_in,
    with_id,
)
from rq.queues.maintenance import retention
from rq.queues.owner.owner import Owner
from rq.states import Event, Role, State

# How many; and how many stay, if there are any.
Acknowledged = tuple[Literal["ok"], int] | tuple[Literal["ok"], int, int]

SEEN = "if_version"  # a list: the message is as one of these, or nothing is done


def delete_message(ctx: Context, arg: bytes) -> Ok[str]:
    """Remove a message that does not run."""
    _, msg_id = named(ctx, arg)
    if ctx.owner.spool.state_of(msg_id) is State.RUN:
        raise WrongState("msg is running: destroy it first")
    ctx.owner.discard(msg_id)
    return "ok", "msg deleted"


def destroy_message(ctx: Context, arg: bytes) -> Ok[str]:
    """End a running message; it goes to err."""
    request, msg_id = named(ctx, arg)
    if not _cancelled(ctx, msg_id, asker(ctx, request)):
        ctx.owner.spool.state_of(msg_id)  # NoSuchMessage, in the same words
        raise WrongState("msg not found")
    return "ok", "msg destroyed"


def cancel_message(ctx: Context, arg: bytes) -> Ok[str]:
    """End a running message, as err `cancelled by WHO`."""
    request, msg_id = named(ctx, arg)
    if not _cancelled(ctx, msg_id, asker(ctx, request)):
        state = ctx.owner.spool.state_of(msg_id)
        raise WrongState(f"msg is not running, it is in {state}")
    return "ok", "msg is being cancelled"


def _cancelled(ctx: Context, msg_id: str, who: str) -> bool:
    """End a running message here, or ask its holder to; False when nobody works on it."""
    return actions.cancelled(ctx.runner, ctx.leases, msg_id, who)


def cancel_batch(ctx: Context, arg: bytes) -> Ok[str]:
    """End the batch that a message runs in, as err `cancelled by WHO`."""
    request, msg_id = named(ctx, arg)
    number = ctx.runner.cancel_batch(msg_id, asker(ctx, request))
    return "ok", f"batch of {number} is being cancelled"


def retry_message(ctx: Context, arg: bytes) -> Awaitable[Ok[str]]:
    """Run a message in err again, with the same id and its count at 0."""
    request, msg_id = named(ctx, arg)
    who = asker(ctx, request)
    retry.hold(ctx.owner, msg_id)
    return _retried(ctx.owner, msg_id, who, request.get(SEEN))


async def _end_last_attempt(owner: Owner, msg_id: str) -> None:
    """End what is left of the last attempt of a message that is held; Busy if it
    stays."""
    try:
        left = await retry.end_last_attempts(owner, [msg_id])
    finally:
        retry.release(owner, [msg_id])
    retry.refuse_left(msg_id, left)


async def _retried(owner: Owner, msg_id: str, who: str, seen: Json) -> Ok[str]:
    await _end_last_attempt(owner, msg_id)
    check_version(owner, msg_id, seen)  # much may have happened meanwhile
    retry.again(owner, msg_id, who)
    owner.wake()
    return "ok", "msg sent round again"


def reopen_message(ctx: Context, arg: bytes) -> Ok[str]:
    """Take the acknowledgement of an error back."""
    request, msg_id = named(ctx, arg)
    deed = Deed(Action.UNACK, None, asker(ctx, request))
    _hands(ctx).act(deed, msg_id, {})
    ctx.owner.wake()
    return "ok", "msg is in err again"


def move_message(ctx: Context, arg: bytes) -> NowOrLater[str]:
    """Let a message that waits, or has failed, go on in another queue."""
    request, msg_id = named(ctx, arg)
    check_leaving(ctx)
    by = asker(ctx, request)
    deed = actions.deed(ctx.owner, Action.MOVE, request.get("to"), by)
    if not deed.ends_attempts(ctx.owner.spool.state_of(msg_id)):
        return _moved(ctx, deed, msg_id)
    retry.hold(ctx.owner, msg_id)
    return _moved_later(ctx, deed, msg_id, request.get(SEEN))


def check_leaving(ctx: Context) -> None:
    """Raise NotPermitted when who asks may not move messages of this queue."""
    is_admin = ctx.connection.asker.principal.may(Access.ADMIN)
    secrets.check_leaving(ctx.owner.name, open_to=is_admin)


async def _moved_later(ctx: Context, deed: Deed, msg_id: str, seen: Json) -> Ok[str]:
    await _end_last_attempt(ctx.owner, msg_id)
    check_version(ctx.owner, msg_id, seen)
    return _moved(ctx, deed, msg_id)


def _moved(ctx: Context, deed: Deed, msg_id: str) -> Ok[str]:
    _hands(ctx).act(deed, msg_id, {})
    ctx.owner.wake()
    return "ok", f"msg moved to {deed.to}"


def _hands(ctx: Context) -> Hands:
    return Hands(ctx.owner, ctx.runner, ctx.leases)


def run_message(ctx: Context, arg: bytes) -> Ok[str]:
    """Let a message in que run before all others."""
    _, msg_id = named(ctx, arg)
    state = ctx.owner.spool.state_of(msg_id)
    if state is State.RUN:
        raise WrongState("msg already running")
    if state is not State.QUE:
        raise WrongState("msg not in runnable state")
    ctx.owner.run_now(msg_id)
    return "ok", "msg sent to front of run queue"


def set_message(ctx: Context, arg: bytes) -> Ok[str]:
    """Change the priority or the due of a message in que."""
    request, msg_id = named(ctx, arg)
    wanted = _wanted(request)
    state = ctx.owner.spool.state_of(msg_id)
    if state is not State.QUE:
        raise WrongState(f"msg does not wait, it is in {state}")
    ctx.owner.backlog.steer(msg_id, **wanted)
    ctx.owner.wake()
    return "ok", "msg changed"


class _Wanted(TypedDict, total=False):
    """What is to be changed."""

    due: float
    priority: int


def _wanted(request: Mapping[str, Json]) -> _Wanted:
    wanted: _Wanted = {}
    if request.get("due") is not None:
        wanted["due"] = fields.due(request["due"])
    if request.get("priority") is not None:
        wanted["priority"] = fields.priority(request["priority"])
    if not wanted:
        raise BadInput("say what to change: due, priority, or both")
    return wanted


def ack_errs(ctx: Context, arg: bytes) -> Acknowledged | Awaitable[Acknowledged]:
    """Acknowledge one error, or all of them, with `before` those that failed before a
    time; answer how many, and behind it how many stay because they failed meanwhile."""
    request = object_in(arg) if arg.strip().startswith(b"{") else {}
    if "msg_id" not in request:
        wanted = {"state": str(State.ERR), "before": request.get("before")}
        return _all_acknowledged(ctx.owner, filters.from_json(wanted))
    _, msg_id = named(ctx, arg)
    ctx.owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
    return "ok", 1


async def _all_acknowledged(owner: Owner, wanted: Filter) -> Acknowledged:
    """Acknowledge what is in err now, a few at a time, no faster than folders move. What
    is retried and fails again meanwhile is another failure, and stays; so does what failed
    after the operator had looked."""
    touched: dict[str, State] = {}
    owner.spool.events.watches.append(touched)
    try:
        number, again = await _acknowledged(owner, wanted, touched)
        return ("ok", number, again) if again else ("ok", number)
    finally:
        owner.spool.events.watches.remove(touched)


async def _acknowledged(
    owner: Owner, wanted: Filter, touched: Container[str]
) -> tuple[int, int]:
    """Return how many were acknowledged, and how many have failed meanwhile."""
    spool, number, again = owner.spool, 0, 0

    def acknowledge(msg_id: str) -> None:
        nonlocal number, again
        if owner.admission.stopping:
            raise Closed(
                f"the queue is stopping: {number} were acknowledged, ask again for the rest"
            )
        if spool.find(msg_id) is not State.ERR:
            return
        if msg_id in touched or not selection.is_meant(spool, wanted, msg_id):
            again += 1
            return
        spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
        number += 1

    ids = await message_list.in_err(owner)
    for at in range(0, len(ids), retention.BATCH):
        await retention.keep_pace(spool, owner.admission)
        some = ids[at : at + retention.BATCH]
        await in_slices(some, acknowledge, owner.wake)
        await owner.committed()
    return number, again


def named(ctx: Context, arg: bytes) -> tuple[dict[str, Json], str]:
    """Return the argument and its message; Changed when that is no longer as the asker
    has seen it."""
    request, msg_id = with_id(arg)
    check_version(ctx.owner, msg_id, request.get(SEEN))
    return request, msg_id


def check_version(owner: Owner, msg_id: str, seen: Json) -> None:
    """Changed when the asker has `seen` a message and it is not so any more."""
    if seen is None:
        return
    now = message_view.version(owner, msg_id)
    if not isinstance(seen, list) or now not in seen:
        raise Changed(
            f"message {msg_id} is no longer as you have seen it, it is {now} (state and "
            "attempts): look again"
        )


HANDLERS: dict[str, Handler] = {
    "delete_message": delete_message,
    "destroy_message": destroy_message,
    "cancel_message": cancel_message,
    "cancel_batch": cancel_batch,
    "retry_message": retry_message,
    "run_message": run_message,
    "set_message": set_message,
    "reopen_message": reopen_message,
    "move_message": move_message,
    "ack_errs": ack_errs,
}
