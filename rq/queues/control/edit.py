"""The command that sends a message again with other fields, as a new one."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from rq import fieldnames
from rq.access.roles import Role as Access
from rq.config import secrets
from rq.errors import BadInput
from rq.message import sent
from rq.nesting import Json
from rq.queues.control import idempotency
from rq.queues.control.change import named
from rq.queues.control.command import Command, Context, Ok
from rq.queues.control.idempotency import Key
from rq.queues.delivery import copies
from rq.queues.owner.owner import Owner
from rq.states import Event, Role, State

_STAY = fieldnames.OWN | {
    "dest",
    "count",
    "orig_msg_id",
    "force_remote",
    "cloned_from",
    "hold",
}


def edit_message(ctx: Context, arg: bytes) -> Awaitable[Ok[str]]:
    """Send a message that has ended again, with other fields: a new message that names
    it, with its attachments. One in err is acknowledged."""
    request, msg_id = named(ctx, arg)
    key = idempotency.key_in(ctx.connection.asker, request)
    return _edited(ctx.owner, msg_id, _changes(request.get("changes")), key)


async def _edited(
    owner: Owner, msg_id: str, changes: Mapping[str, Json], key: Key | None
) -> Ok[str]:
    due: dict[str, Json] = {"due": owner.spool.clock()}
    earlier = None if key is None else key.among(owner)
    if earlier is not None:
        full_id = owner.full_id(earlier.msg_id)
    else:
        kept = None if key is None else key.kept
        full_id = await copies.clone(owner, msg_id, {**due, **changes}, kept)
    # The new one is durable. If the owner ends here, the old one needs a person still.
    if owner.spool.find(msg_id) is State.ERR:
        owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
        await owner.committed()
    return "ok", full_id


def _changes(wanted: Json) -> Mapping[str, Json]:
    """Return what is to be changed; a failure if a sender could not say it, or if it
    would be another message altogether."""
    if not isinstance(wanted, dict) or not wanted:
        raise BadInput("say changes: an object of fields, null for one to be left out")
    for name, value in wanted.items():
        if name in _STAY:
            raise BadInput(f"{name} cannot be edited: send a new message")
        if secrets.is_cut(value):
            raise BadInput(
                f"{name} holds {secrets.HIDDEN}, in place of what admins alone are shown: "
                "leave the field out, or say all of it"
            )
    sent.check({name: v for name, v in wanted.items() if v is not None})
    return wanted


COMMANDS: dict[str, Command] = {
    "edit_message": Command(edit_message, Access.OPERATOR, creates=True),
}
