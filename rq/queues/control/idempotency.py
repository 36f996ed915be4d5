"""Idempotency keys: one message for each key of a user, however often it is sent.

While a message is in prep its key stands in its file; the line that commits it takes the
key over, and from then on it is remembered whatever becomes of the message.

A key is its user's. Two users who choose the same text mean two messages, and none can
take a key away from another by sending it first. So what is remembered, in the journal
and everywhere behind it, is USER, a tab and the text; a text that is printable holds no
tab. Whose a key is, is decided where it comes in:

- The kernel says who asks at the socket. RQ's own user and root may say for whom they ask
  (`_key_of`): so the web and the broker name the user whom they have let in. That is the
  same user whichever door and whichever token of theirs it is.
- What RQ itself sends under a key (what is owed, copies, timers, the relay, notices,
  results of Spark) comes from RQ's own user, and of no user: the text is remembered as it
  is. No user can take such a key, nor meet it, whatever text they choose.
- The relay of another host comes over HTTP as a user, and its keys are that user's. A
  producer who looks at what it has prepared finds the key there, and must not be first
  with it. Such a user meets what is remembered as it is: what the version before has
  taken from relays, and what the relay of this host has brought.
- A transaction is its user's by the same rule, in a table of its own: a job on Spark
  counts its batches, so the next key can be guessed, and one that is committed counts as
  sent.
- The version before remembered the texts of all users as they are. Until these are
  forgotten each user meets them. They are never written any more, so a text that is
  remembered so, and is none of RQ's own, is of before.

What a producer prepares is its own, too: a message in prep, and a transaction, until they
are decided. Ids are no secret, for whoever may look can list them; so an id alone must not
let one producer commit, abort or change what another one is about to send. Who prepared it
stands in its file, or in the line that opened the transaction; a key says it, too. That
user may go on with it, and so may an operator. What RQ's own user prepares is of no user
(""), but for whom it says (`_preparer`): so the web names the user whom it has let in. What
the version before prepared, without a key, names no user, and any of them may go on.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import orjson

from rq.access.roles import Role as Access
from rq.access.sockets import Asker
from rq.errors import BadInput, BadMessage, NotPermitted, RQError, Unread
from rq.message import fieldnames
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.proc.slices import in_slices
from rq.queues.control import reused
from rq.queues.owner.owner import PREPARED, Owner
from rq.spool import Accepted, outbox
from rq.spool.record import More
from rq.spool.transactions import Transaction
from rq.words.nesting import Json
from rq.words.states import Event, Role, State

KEY, KEY_OF = fieldnames.KEY, fieldnames.KEY_OF
PREPARER, AS_OPERATOR = fieldnames.PREPARER, fieldnames.AS_OPERATOR
BY = fieldnames.BY
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
_LONGEST_USER = 200
# How the keys begin under which parts of RQ send, beside those of outboxes.
_OF_RQ = (
    fieldnames.RELAY_KEY,
    "broker/",
    fieldnames.FLOW_KEY,
    "notice/",
    "spark/",
    "timer/",
    "timer-run/",
)
_DIGITS = 16  # of a digest; it has to find mistakes only


class Key(NamedTuple):
    """A key that came with a request."""

    text: str  # as it was said
    kept: str  # as it is remembered
    before: str | None  # as the version before has remembered it; None: it cannot have

    def among(self, owner: Owner) -> Accepted | None:
        """Return what was accepted under it, if that is remembered."""
        accepted = owner.spool.accepted_with(self.kept)
        if accepted is None and self.before is not None:
            accepted = owner.spool.accepted_with(self.before)
        return accepted


def key_in(asker: Asker, request: dict[str, Json]) -> Key | None:
    """Take the key, and whose it is, out of what was asked for."""
    text, said = request.pop(KEY, None), request.pop(KEY_OF, None)
    return None if text is None else _key(asker, checked(text, KEY), said)


def key_of_txn(asker: Asker, request: dict[str, Json]) -> Key | None:
    """Return the key under which a transaction is asked for. It meets, too, those that the
    version before has remembered, whichever user opened them."""
    value = request.get("key")
    if value is not None and not isinstance(value, str):
        raise BadInput(f"key is not a string: {value!r:.60}")
    if value is None:
        return None
    text = checked(value, "key")
    return _key(asker, text, request.get(KEY_OF))._replace(before=text)


def _key(asker: Asker, text: str, said: object) -> Key:
    is_of_rq = text.startswith(_OF_RQ) or outbox.IS_KEY.fullmatch(text) is not None
    if is_of_rq and asker.is_own and said is None:
        return Key(text, text, None)
    user = asker.principal.name
    if asker.is_own and said is not None:
        user = _user(said)
    is_of_relay = asker.is_own and text.startswith(fieldnames.RELAY_KEY)
    before = text if is_of_relay or not is_of_rq else None
    return Key(text, f"{user}\t{text}", before)


def _user(said: object, field: str = KEY_OF) -> str:
    """Return a user that was named; BadInput: another could be taken for it."""
    if isinstance(said, str) and said.isprintable() and 0 < len(said) <= _LONGEST_USER:
        return said
    raise BadInput(f"{field} is not the name of a user: {said!r:.60}")


def sender_in(asker: Asker, request: dict[str, Json]) -> str | None:
    """Take out of a request who sends its message: whom the kernel names; RQ's own user
    and root may say for whom they send, "" for RQ itself (None)."""
    said = request.pop(BY, None)
    if said is None or not asker.is_own:
        return asker.principal.name
    return None if said == "" else _user(said, BY)


class Preparer(NamedTuple):
    """As whom something is prepared, or changed while it is."""

    user: str  # "": RQ itself
    is_operator: bool
    by: str | None = None  # who sends what is prepared; None: RQ itself

    def check(self, txn: Transaction) -> None:
        """NotPermitted unless this user may change a transaction."""
        self._check(_whose(txn.key, txn.preparer), f"transaction {txn.txn_id}")

    def check_message(self, owner: Owner, msg_id: str) -> None:
        """NotPermitted unless this user may change a message in prep."""
        if self.is_operator:
            return  # to read the file would take a descriptor, and there may be none
        message, txn = owner.spool.read(msg_id), owner.spool.txns.of(msg_id)
        if txn is not None:
            self.check(txn)
        else:
            whose = _whose(message.extra.get(KEY), message.extra.get(PREPARER))
            self._check(whose, f"message {msg_id}")

    def _check(self, whose: object, what: str) -> None:
        if not self.is_operator and whose not in (None, self.user):
            raise NotPermitted(
                f"{what} is prepared by another user: it takes that user or an operator"
            )


def preparer_in(asker: Asker, request: dict[str, Json]) -> Preparer:
    """Take out of a request as whom something is prepared, or changed while it is."""
    said, is_operator = request.pop(PREPARER, None), request.pop(AS_OPERATOR, False)
    by, name = sender_in(asker, request), asker.principal.name
    if not asker.is_own:
        return Preparer(name, asker.principal.may(Access.OPERATOR), by)
    if said is None:
        return Preparer("", is_operator=True, by=by)
    return Preparer(_user(said, PREPARER), is_operator is True, by)


def _whose(key: object, preparer: object) -> object:
    """Return the user who has prepared something; None: that is not known."""
    user, tab, _ = key.partition("\t") if isinstance(key, str) else ("", "", "")
    return user if tab else preparer


def checked(key: object, name: str) -> str:
    """Return a key that may be remembered."""
    # One that is empty was never chosen: all that came with it would be one message.
    if not 0 < len(str(key)) <= _LIMIT or not str(key).isprintable():
        raise BadInput(f"{name} is not 1 to {_LIMIT} printable characters")
    return str(key)


def committed(owner: Owner, key: Key | None, msg_id: str) -> Accepted | None:
    """Return what a message that is in prep no more was committed as; `key` came with the
    commit."""
    accepted = None if key is None else key.among(owner)
    return accepted or owner.spool.accepted_with(f"{PREPARED}{msg_id}")


def answered(accepted: Accepted, text: str) -> OkOrJoined:
    """Return the answer to who has sent a message."""
    return ("ok", text, JOINED) if accepted.joined else ("ok", text)


def already(owner: Owner, committed: Accepted | None) -> OkOrJoined:
    """Return the answer to who commits once more what was committed."""
    if committed is not None and committed.joined:
        return "ok", ALREADY, JOINED, owner.full_id(committed.msg_id)
    return "ok", ALREADY


def accept_request(owner: Owner, asker: Asker, request: dict[str, Json]) -> Accepted:
    """Accept the message that a request asks for, or find the one that was accepted with
    its key, or that it joins; without asking for a turn. KeyReused when its key came with
    another message before, and the request wants to know it."""
    key, is_strict = key_in(asker, request), request.pop(SAME, None) is True
    by = sender_in(asker, request)
    earlier = None if key is None else key.among(owner)
    text = key and key.text
    is_handed_on = fieldnames.is_handed_on(request, text)
    line: More = {} if key is None else {"key": key.kept}
    if key is not None and not is_handed_on:  # from other hosts: a key of one message
        # What tells one message from another, whatever the order of its fields.
        data = orjson.dumps(request, option=orjson.OPT_SORT_KEYS)
        line["body"] = hashlib.sha256(data).hexdigest()[:_DIGITS]
    if earlier is not None:
        if is_strict and earlier.body not in ("", line.get("body", earlier.body)):
            raise reused.refusal(text, earlier, _both(owner, earlier, request))
        return earlier
    owner.admission.check_open()
    message = owner.make(request, is_new=not is_handed_on, by=by)
    return owner.accept_quietly(message, **line)


def _both(
    owner: Owner, earlier: Accepted, request: Json
) -> tuple[Message, Message] | None:
    """Return the message of a key, and the one that is asked for with it now; None: one
    of them is not known, or the key's joined a message of another request."""
    if earlier.joined:
        return None
    try:
        before = owner.spool.read(earlier.msg_id)
        return before, owner.make(request, is_new=True, by=None)
    except (RQError, OSError):
        return None


def prepare(
    owner: Owner, request: JsonObject, preparer: Preparer, key: Key | None
) -> str:
    """Begin a message, of which its file says who prepares it; return its id."""
    is_handed_on = fieldnames.is_handed_on(request, key and key.text)
    message = owner.make(request, is_new=not is_handed_on, by=preparer.by)
    extra = {**message.extra, PREPARER: preparer.user}
    if key is not None:
        extra[KEY] = key.kept
    owner.spool.prepare(message.with_(extra=extra))
    return message.msg_id


def prepare_once(
    owner: Owner,
    prepared: dict[str, str],
    request: JsonObject,
    preparer: Preparer,
    key: Key,
) -> tuple[str, str]:
    """Begin a message unless one with this key was begun or accepted; return the id of
    the one, and `prep` or `commited`. `prepared` is the owner's."""
    accepted = key.among(owner)
    if accepted is not None:
        return accepted.msg_id, COMMITTED
    for kept in (key.kept, key.before):
        msg_id = None if kept is None else prepared.get(kept)
        if msg_id is not None and _is_begun(owner, msg_id, preparer, kept):
            return msg_id, str(State.PREP)
    owner.admission.check_open()
    prepared[key.kept] = msg_id = prepare(owner, request, preparer, key)
    return msg_id, str(State.PREP)


def _is_begun(owner: Owner, msg_id: str, preparer: Preparer, key: str | None) -> bool:
    """Whether a message waits in prep under a key, and `preparer` may go on with it."""
    if key_of(owner, msg_id) != key:
        return False
    try:
        preparer.check_message(owner, msg_id)
    except NotPermitted:
        return False  # RQ's own
    return True


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
    """Accept a message that was prepared, or join it to an equal one, which the answer
    names then."""
    key = message.extra.get(KEY)
    extra = {n: v for n, v in message.extra.items() if n not in (KEY, PREPARER)}
    if not isinstance(key, str):
        # One that has run elsewhere is an ancestor's, whose relay may ask again when it
        # has not heard the answer, and would send again what is not known any more.
        more: More = {"key": f"{PREPARED}{message.msg_id}"} if message.count else {}
        return _committed(owner, message.with_(extra=extra), more)
    if owner.prepared:
        owner.prepared.pop(key, None)
    earlier = owner.spool.accepted_with(key)
    if earlier is not None:
        # Another with its key was accepted meanwhile; this one never is.
        owner.spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        return already(owner, earlier)
    return _committed(owner, message.with_(extra=extra), {"key": key})


def _committed(owner: Owner, message: Message, more: More) -> OkOrJoined:
    accepted = owner.accept_quietly(message, **more)
    owner.wake()
    if accepted.joined:
        return "ok", f"msg {COMMITTED}", JOINED, owner.full_id(accepted.msg_id)
    return "ok", f"msg {COMMITTED}"
