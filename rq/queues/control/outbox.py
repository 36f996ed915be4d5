"""The commands about what ended messages still owe to other queues."""

from __future__ import annotations

from itertools import islice

from rq import replies
from rq.access.roles import Role
from rq.config import secrets
from rq.errors import BadInput, NoSuchMessage, WrongState
from rq.queues import arguments
from rq.queues.control.command import Context, Handler, Ok, Request, asker
from rq.queues.delivery import owed as delivery
from rq.queues.owner.owner import Owner
from rq.spool import outbox
from rq.spool.outbox import Of, Owed

MOST = 1000
DELIVERED, AGAIN, DROPPED = "delivered", "again", "dropped"
_SAID = {
    DELIVERED: "it counts as delivered",
    AGAIN: "it is tried again, for six days",
    DROPPED: "it is given up",
}


def owed(ctx: Context, request: Request) -> Ok[list[replies.Owed]]:
    """Answer what is owed, those in doubt first, then as it was owed; with `key` what
    is owed under that one."""
    owner = ctx.owner
    if "key" in request:
        of = _place(owner, str(request["key"]))
        places = [] if of is None else [of]
    else:  # what was owed first is in doubt first
        most = arguments.limit(request, MOST, MOST)
        places = list(islice(owner.spool.owed, most))
    rows = [entry_view(owner, of) for of in places]
    if not ctx.connection.asker.principal.may(Role.ADMIN):
        for row in rows:
            row["target"] = secrets.host_only(row["target"])
    return "ok", rows


def entry_view(owner: Owner, of: Of) -> replies.Owed:
    """Return what is told of something owed: its key, to whom, of which message, why."""
    entry = owner.spool.owed[of]
    in_doubt = delivery.in_doubt(entry, owner.spool.clock())
    return {
        "key": entry.key,
        "dest": entry.dest,
        "target": _target(entry),
        "msg_id": entry.msg_id,
        "since": entry.since,
        "in_doubt": in_doubt,
        "files": entry.files,
        "why": owner.health.deliveries.get(entry.dest)
        or _present(owner, entry, in_doubt),
    }


def _target(entry: Owed) -> str:
    """Return where it is to arrive in the end: the URL of a webhook or of a relay."""
    name = "param1" if entry.dest == delivery.WEBHOOK else "dest"
    return str(entry.message.get(name, entry.dest))


def _present(owner: Owner, entry: Owed, in_doubt: bool) -> str:
    """Return what would hinder it now, when no answer is known any more."""
    if not in_doubt:
        return ""
    unknown = f"the last answer is not known any more; queue {entry.dest} is UP now"
    return delivery.why_not(owner.root, entry.dest) or unknown


def resolve_owed(ctx: Context, request: Request) -> Ok[str]:
    """Carry out what a person has decided about something owed."""
    how, by = str(request.get("as")), asker(ctx, request)
    if how not in _SAID:
        raise BadInput(f"'as' must be one of {', '.join(_SAID)}")
    spool = ctx.owner.spool
    key = str(request.get("key"))
    of = _find(ctx.owner, key)
    if how != DROPPED and not delivery.in_doubt(spool.owed[of], spool.clock()):
        raise WrongState(f"{key} is not in doubt: RQ still delivers it by itself")
    if how == AGAIN:
        spool.send_again(*of, by=by)
    else:
        spool.sent(*of, said=how, by=by)
    ctx.owner.wake()
    return "ok", _SAID[how]


def _find(owner: Owner, key: str) -> Of:
    of = _place(owner, key)
    if of is not None:
        return of
    raise NoSuchMessage(
        f"no copy or webhook {key:.80} is to be delivered; `rq owed ls` lists those "
        "that are"
    )


def _place(owner: Owner, key: str) -> Of | None:
    of = outbox.place_of(key)
    entry = None if of is None else owner.spool.owed.get(of)
    return of if entry is not None and entry.key == key else None


HANDLERS: dict[str, Handler] = {
    "owed": owed,
    "resolve_owed": resolve_owed,
}
