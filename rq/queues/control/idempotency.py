"""Idempotency keys: one message for each key, however often it is sent.

While a message is in prep its key stands in its file; the line that commits it takes the
key over, and from then on it is remembered whatever becomes of the message.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import orjson

from rq import fieldnames
from rq.errors import BadInput, BadMessage, Unread
from rq.message import JsonObject, Message
from rq.nesting import Json
from rq.queues.concurrency.tasks import in_slices
from rq.queues.owner.owner import PREPARED, Owner
from rq.spool import Accepted
from rq.spool.record import More
from rq.states import Event, Role, State

KEY = "_key"
SAME = "_same"  # with a key: refuse it when it came with another message before
COMMITTED = "commited"  # as the ancestor spells it
ALREADY = f"msg already {COMMITTED}"
JOINED = "joined"  # of an answer: nothing new was made, an equal message stands

# `joined`, and the id of the message that stands, if what comes before is another text.
OkOrJoined = (
    tuple[Literal["ok"], str]
    | tuple[Literal["ok"], str, str]
    | tuple[Literal["ok"], str, str, str]
)

_LIMIT = 200  # characters
_DIGITS = 16  # of a digest; it has to find mistakes only


def key_in(request: dict[str, Json]) -> str | None:
    """Take the key out of what was asked for."""
    return checked(request.pop(KEY, None), KEY)


def checked(key: object, name: str) -> str | None:
    """Return a key that may be remembered, if there is one."""
    if key is None:
        return None
    # One that is empty was never chosen: all that came with it would be one message.
    if not 0 < len(str(key)) <= _LIMIT or not str(key).isprintable():
        raise BadInput(f"{name} is not 1 to {_LIMIT} printable characters")
    return str(key)


def committed(owner: Owner, request: dict[str, Json], msg_id: str) -> Accepted | None:
    """Return what a message that is in prep no more was committed as; takes the key out
    of what was asked."""
    keys = key_in(request), f"{PREPARED}{msg_id}"
    accepted_as = (owner.spool.accepted_with(key) for key in keys if key)
    return next((accepted for accepted in accepted_as if accepted is not None), None)


def answered(accepted: Accepted, text: str) -> OkOrJoined:
    """Return the answer to who has sent a message."""
    return ("ok", text, JOINED) if accepted.joined else ("ok", text)


def already(owner: Owner, committed: Accepted | None) -> OkOrJoined:
    """Return the answer to who commits once more what was committed."""
    if committed is not None and committed.joined:
        return "ok", ALREADY, JOINED, owner.full_id(committed.msg_id)
    return "ok", ALREADY


def created(owner: Owner, request: dict[str, Json]) -> Accepted:
    """Accept a message, or find the one that was accepted with its key, or that it
    joins; without asking for a turn."""
    key = key_in(request)
    if key is not None:
        return _created_once(owner, request, key)
    request.pop(SAME, None)
    owner.admission.check_open()
    message = owner.make(request)
    stands = owner.accept_quietly(message)
    return Accepted(stands, 0.0, joined=stands != message.msg_id)


def _accepted(owner: Owner, message: Message, more: More) -> Accepted:
    stands = owner.accept_quietly(message, **more)
    return Accepted(stands, 0.0, joined=stands != message.msg_id)


def _created_once(owner: Owner, request: dict[str, Json], key: str) -> Accepted:
    """Accept a message unless one with this key was; return the one. BadInput when that
    was another message, and the request wants to know it."""
    same = request.pop(SAME, None) is True
    body = _digest(request, key)
    accepted = owner.spool.accepted_with(key)
    if accepted is not None:
        if same and body and accepted.body and body != accepted.body:
            raise BadInput(
                f"the key {key!r} came with another message before, {accepted.msg_id}: "
                "a key names one request"
            )
        return accepted
    owner.admission.check_open()
    more: More = {"key": key, "body": body} if body else {"key": key}
    return _accepted(owner, owner.make(request, key), more)


def _digest(request: JsonObject, key: str) -> str:
    """Return what tells one message from another, whatever the order of its fields; ""
    for what other hosts hand over: their key is one of one message already."""
    if fieldnames.is_handed_on(request, key):
        return ""
    data = orjson.dumps(request, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def prepare(
    owner: Owner, prepared: dict[str, str], request: JsonObject, key: str
) -> tuple[str, str]:
    """Begin a message unless one with this key was begun or accepted; return the id of
    the one, and `prep` or `commited`. `prepared` is the owner's."""
    accepted = owner.spool.message_of(key)
    if accepted is not None:
        return accepted, COMMITTED
    msg_id = prepared.get(key)
    if msg_id is None or key_of(owner, msg_id) != key:
        owner.admission.check_open()
        message = owner.make(request, key)
        msg_id = message.msg_id
        extra = {**message.extra, KEY: key}
        owner.spool.prepare(message.with_(extra=extra))
        prepared[key] = msg_id
    return msg_id, str(State.PREP)


def key_of(owner: Owner, msg_id: str) -> str | None:
    """Return the key of a message in prep; None for any other, and when its file is
    torn: then it cannot be committed either. Unread: it cannot be told for now."""
    if owner.spool.find(msg_id) is not State.PREP:
        return None
    try:
        key = owner.spool.read(msg_id).extra.get(KEY)
    except Unread:
        raise
    except BadMessage:
        return None
    return key if isinstance(key, str) else None


async def read_prepared(owner: Owner) -> dict[str, str]:
    """Return the messages in prep by their keys, those also that an earlier process has
    left there; from then on the owner knows them."""
    by_key: dict[str, str] = {}

    def look(msg_id: str) -> None:
        entry = owner.spool.entry_of(msg_id)
        if entry is None or entry.state is not State.PREP:
            return
        # What a transaction holds has no key of its own.
        if not owner.spool.txns.of(msg_id) and (key := key_of(owner, msg_id)):
            by_key[key] = msg_id

    await in_slices(owner.spool.live(), look)
    if owner.prepared is None:  # another who asked may have been faster
        owner.prepared = by_key
    return owner.prepared


async def forget_removed(owner: Owner) -> None:
    """Forget the keys of prepared messages that were removed and not committed."""
    prepared = owner.prepared or {}

    def look(key: str) -> None:
        entry = owner.spool.entry_of(prepared.get(key, ""))
        if entry is None or entry.state is not State.PREP:
            prepared.pop(key, None)

    await in_slices(list(prepared), look)


def accept(owner: Owner, message: Message) -> OkOrJoined:
    """Accept a message that was prepared, or let it join an equal one, which the answer
    names then."""
    key = message.extra.get(KEY)
    if not isinstance(key, str):
        # One that has run elsewhere is an ancestor's, whose relay may ask again when it
        # has not heard the answer, and would send anew what is not known any more.
        more: More = {"key": f"{PREPARED}{message.msg_id}"} if message.count else {}
        return _committed(owner, message, more)
    if owner.prepared:
        owner.prepared.pop(key, None)
    earlier = owner.spool.accepted_with(key)
    if earlier is not None:
        # Another with its key was accepted meanwhile; this one never is.
        owner.spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        return already(owner, earlier)
    extra = {name: value for name, value in message.extra.items() if name != KEY}
    return _committed(owner, message.with_(extra=extra), {"key": key})


def _committed(owner: Owner, message: Message, more: More) -> OkOrJoined:
    accepted = _accepted(owner, message, more)
    owner.wake()
    if accepted.joined:
        return "ok", f"msg {COMMITTED}", JOINED, owner.full_id(accepted.msg_id)
    return "ok", f"msg {COMMITTED}"
