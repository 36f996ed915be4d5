"""The commands that change what becomes of a message: the actions of the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Literal

from rq.access.roles import Role as Access
from rq.config import secrets
from rq.errors import Changed, Closed, WrongState
from rq.message import actions as table
from rq.message import filter as filters
from rq.message.action import Action, Door
from rq.message.actions import ACTIONS, Word
from rq.message.filter import Filter
from rq.proc.slices import in_slices
from rq.queues.bulk import actions, retry, selection
from rq.queues.bulk.actions import DOES, Deed, Hands
from rq.queues.control import message_list, message_view
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Request,
    asker,
    msg_id_in,
)
from rq.queues.maintenance import retention
from rq.queues.owner.owner import Owner
from rq.words.nesting import Json
from rq.words.states import Event, Role, State, public

# How many; and how many stay, if there are any.
Acknowledged = Ok[int] | tuple[Literal["ok"], int, int]

SEEN = "if_version"  # a list: the message is as one of these, or nothing is done


# ---- an action of the table


def _handler(action: Action) -> Callable[[Context, Request], Ok[str | int]]:
    """Return the handler of an action that is done in the turn of its request."""

    def act(ctx: Context, request: Request) -> Ok[str | int]:
        msg_id = named(ctx, request)
        return _acted(ctx, _deed(ctx, action, request), msg_id)

    return act


def _later(action: Action) -> Handler:
    """Return the handler of an action after which a message may run again: first nothing
    of its last attempt may be left."""

    def act(ctx: Context, request: Request) -> NowOrLater[str | int]:
        msg_id = named(ctx, request)
        deed = _deed(ctx, action, request)
        if not deed.ends_attempts(ctx.owner.spool.state_of(msg_id)):
            return _acted(ctx, deed, msg_id)
        retry.hold(ctx.owner, msg_id)
        return _acted_later(ctx, deed, msg_id, request.get(SEEN))

    return act


def _deed(ctx: Context, action: Action, request: dict[str, Json]) -> Deed:
    if action.word is Word.MOVE:
        check_leaving(ctx)
    return actions.deed_of(ctx.owner, action, request, asker(ctx, request))


async def _acted_later(
    ctx: Context, deed: Deed, msg_id: str, seen: Json
) -> Ok[str | int]:
    owner = ctx.owner
    try:
        left = await retry.end_last_attempts(owner, [msg_id])
    finally:
        retry.release(owner, [msg_id])
    retry.refuse_left(msg_id, left)
    check_version(owner, msg_id, seen)  # much may have happened meanwhile
    return _acted(ctx, deed, msg_id)


def _acted(ctx: Context, deed: Deed, msg_id: str) -> Ok[str | int]:
    action = deed.action
    changed = _hands(ctx).act(deed, msg_id, {})
    ctx.owner.wake()
    if not changed:
        return "ok", f"msg {action.already}"
    reply = action.reply
    return "ok", reply if isinstance(reply, int) else reply.format(**deed.given)


def _hands(ctx: Context) -> Hands:
    return Hands(ctx.owner, ctx.runner, ctx.leases)


def check_leaving(ctx: Context) -> None:
    """Raise NotPermitted when who asks may not move messages of this queue."""
    is_admin = ctx.connection.asker.principal.may(Access.ADMIN)
    secrets.check_leaving(ctx.owner.name, open_to=is_admin)


# ---- ending what runs


def destroy_message(ctx: Context, request: Request) -> Ok[str]:
    """End a running message; it goes to err. With the ancestor's replies."""
    msg_id = named(ctx, request)
    if not _hands(ctx).cancelled(msg_id, asker(ctx, request)):
        ctx.owner.spool.state_of(msg_id)  # NoSuchMessage, in the same words
        raise WrongState("msg not found")
    return "ok", "msg destroyed"


def cancel_message(ctx: Context, request: Request) -> Ok[str]:
    """End a running message, as err `cancelled by WHO`; one that waits is not removed."""
    msg_id = named(ctx, request)
    if not _hands(ctx).cancelled(msg_id, asker(ctx, request)):
        state = ctx.owner.spool.state_of(msg_id)
        raise WrongState(f"msg is not running, it is in {public(state)}")
    return "ok", str(ACTIONS[Word.CANCEL].reply)


def cancel_batch(ctx: Context, request: Request) -> Ok[str]:
    """End the batch that a message runs in, as err `cancelled by WHO`."""
    msg_id = named(ctx, request)
    number = ctx.runner.cancel_batch(msg_id, asker(ctx, request))
    return "ok", f"batch of {number} is being cancelled"


# ---- all errors at once


def ack_errs(ctx: Context, request: Request) -> Ok[str | int] | Awaitable[Acknowledged]:
    """Acknowledge one error, or all of them, with `before` those that failed before a
    time. The ancestor's reply: how many, and behind it how many stay because they failed
    meanwhile."""
    if "msg_id" not in request:
        wanted = {"state": str(State.ERR), "before": request.get("before")}
        return _all_acknowledged(ctx.owner, filters.from_json(wanted))
    return _handler(ACTIONS[Word.ACK])(ctx, request)


async def _all_acknowledged(owner: Owner, wanted: Filter) -> Acknowledged:
    """Acknowledge what is in err now, a few at a time, no faster than folders move. What
    is retried and fails again meanwhile is another failure, and stays; so does what failed
    after the operator had looked."""
    touched: dict[str, State] = {}
    with owner.spool.events.watched_by(touched):
        number, again = await _acknowledged(owner, wanted, touched)
    return ("ok", number, again) if again else ("ok", number)


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


def named(ctx: Context, request: Request) -> str:
    """Return the message that a request names; Changed when it is no longer as the asker
    has seen it."""
    msg_id = msg_id_in(request)
    check_version(ctx.owner, msg_id, request.get(SEEN))
    return msg_id


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


def _of_table() -> dict[str, Handler]:
    """Return the handlers of the actions that the table alone describes, by all words of
    the socket."""
    handlers: dict[str, Handler] = {}
    for word, action in table.at(Door.SOCKET).items():
        if action.word in DOES:
            handlers[word] = (_later if action.runs_again else _handler)(action)
    return handlers


HANDLERS: dict[str, Handler] = {
    **_of_table(),
    "cancel_message": cancel_message,
    "destroy_message": destroy_message,
    "cancel_batch": cancel_batch,
    "ack_errs": ack_errs,
}
