"""Idempotency keys: one message for each key, however often it is sent.

While a message is in prep its key stands in its file; the line that commits it takes the
key over, and from then on it is remembered whatever becomes of the message.
"""

from __future__ import annotations

import hashlib

import orjson

from rq import fieldnames
from rq.errors import BadInput, BadMessage, Unread
from rq.message import JsonObject, Message
from rq.nesting import Json
from rq.queues.concurrency.tasks import in_slices
from rq.queues.owner.owner import Owner
from rq.spool.record import More
from rq.states import Event, Role, State

KEY = "_key"
SAME = "_same"  # with a key: refuse it when it came with another message before
COMMITTED = "commited"  # as the ancestor spells it
ALREADY = f"msg already {COMMITTED}"
_LIMIT = 200  # characters
_DIGITS = 16  # of a digest; it has to find mistakes only
_OWN = "prep/"  # how the key begins of a message that came without one: its id


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


def was_committed(owner: Owner, request: dict[str, Json], msg_id: str) -> bool:
    """Return whether a message that is here no more was committed; takes the key out of
    what was asked."""
    keys = key_in(request), f"{_OWN}{msg_id}"
    return any(key and owner.spool.message_of(key) is not None for key in keys)


def create(owner: Owner, request: dict[str, Json], key: str) -> str:
    """Accept a message unless one with this key was; return the id of the one. BadInput
    when that was another message, and the request wants to know it."""
    same = request.pop(SAME, None) is True
    body = _digest(request, key)
    accepted = owner.spool.accepted_with(key)
    if accepted is not None:
        if same and body and accepted.body and body != accepted.body:
            raise BadInput(
                f"the key {key!r} came with another message before, {accepted.msg_id}: "
                "a key names one request"
            )
        return accepted.msg_id
    owner.admission.check_open()
    message = owner.make(request, key)
    more: More = {"key": key, "body": body} if body else {"key": key}
    owner.accept(message, **more)
    return message.msg_id


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


def accept(owner: Owner, message: Message) -> str:
    """Accept a message that was prepared; return what to answer."""
    key = message.extra.get(KEY)
    if not isinstance(key, str):
        # One that has run elsewhere is an ancestor's, whose relay may ask again when it
        # has not heard the answer, and would send anew what is not known any more.
        more: More = {"key": f"{_OWN}{message.msg_id}"} if message.count else {}
        owner.accept(message, **more)
        return f"msg {COMMITTED}"
    if owner.prepared:
        owner.prepared.pop(key, None)
    if owner.spool.message_of(key) is not None:
        # Another with its key was accepted meanwhile; this one never is.
        owner.spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        return ALREADY
    extra = {name: value for name, value in message.extra.items() if name != KEY}
    owner.accept(message.with_(extra=extra), key=key)
    return f"msg {COMMITTED}"
