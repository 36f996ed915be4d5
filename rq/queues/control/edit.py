"""The command that sends a message again with other fields, as a new one.

Its attachments are copied by a thread, and meanwhile the message may be retried and fail
again, or be edited by another person. So whether it is as it was is looked at twice: when
the command comes, and when the copy is whole. Then the new message is accepted and the old
one acknowledged in one step, which is one group of the journal: a power cut leaves both or
neither, and no edit acknowledges a failure that came after it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from rq.config import secrets
from rq.errors import BadInput
from rq.message.fields import check_sent
from rq.message.table import FIXED
from rq.queues.control import idempotency, message_view
from rq.queues.control.change import SEEN, check_version
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Request,
    msg_id_in,
)
from rq.queues.delivery import copies
from rq.queues.owner.owner import Owner
from rq.words.nesting import Json
from rq.words.states import Event, Role, State


def edit_message(ctx: Context, request: Request) -> NowOrLater[str]:
    """Send a message that has ended again, with other fields: a new message that names
    it, with its attachments. One in err is acknowledged."""
    owner = ctx.owner
    msg_id = msg_id_in(request)
    key = idempotency.key_in(ctx.connection.asker, request)
    changes = _changes(request.get("changes"))
    edited = None if key is None else key.among(owner)
    if edited is not None:  # then the message is not as the asker has seen it any more
        return "ok", owner.full_id(edited.msg_id)
    check_version(owner, msg_id, request.get(SEEN))
    as_it_is = message_view.version(owner, msg_id)
    kept = None if key is None else key.kept
    return _edited(owner, msg_id, as_it_is, changes, kept)


async def _edited(
    owner: Owner,
    msg_id: str,
    as_it_was: str,
    changes: Mapping[str, Json],
    key: str | None,
) -> Ok[str]:
    due: dict[str, Json] = {"due": owner.spool.clock()}
    copy = await copies.cloned(owner, msg_id, {**due, **changes})
    is_new = key is None or owner.spool.message_of(key) is None
    accepted_id = copies.accept_once(
        owner, copy, key, lambda: check_version(owner, msg_id, [as_it_was])
    )
    if is_new and owner.spool.find(msg_id) is State.ERR:
        owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
        owner.spool.goes_on(msg_id, f"{owner.name}/{accepted_id}")
    await owner.committed()
    return "ok", owner.full_id(accepted_id)


def _changes(wanted: Json) -> Mapping[str, Json]:
    """Return what is to be changed; a failure if a sender could not say it, or if it
    would be another message altogether."""
    if not isinstance(wanted, dict) or not wanted:
        raise BadInput("say changes: an object of fields, null for one to be left out")
    for name, value in wanted.items():
        if name in FIXED:
            raise BadInput(f"{name} cannot be edited: send a new message")
        if secrets.is_cut(value):
            raise BadInput(
                f"{name} holds {secrets.HIDDEN}, in place of what admins alone are shown: "
                "leave the field out, or say all of it"
            )
    check_sent({name: v for name, v in wanted.items() if v is not None})
    return wanted


HANDLERS: dict[str, Handler] = {"edit_message": edit_message}
