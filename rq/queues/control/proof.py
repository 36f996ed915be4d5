"""Messages for a guarded queue: who may give such an order, and how an owner's is proved.

A guarded queue (`rq.message.guarded`) is told much by RQ's own user: by the web and the broker's
bridge, which have asked the guard themselves, by operators, and by the owners of other
queues, which deliver what they owe. Only the last send under keys JOURNAL/SEQ/I of their
outbox, and only for such keys something has to be proved:

- The receiver asks the owner that is named for the entry of its outbox under that key. It
  must be the message that came, field by field. So neither the words of a sender nor a key
  that was guessed are a proof, and a forged message is refused before it can take the key
  from the true one.
- An owner that does not answer has not said no: the sender hears `busy`, and the delivery
  is tried again.
- The owner answers from its memory, and asks no other process. So two owners that deliver to each
  other do not wait in a circle.
- What was accepted under a key is known by it: it was proved then, and is not asked for
  again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from rq import names
from rq.errors import BadInput, Busy, NotPermitted, RQError
from rq.message import guarded
from rq.message.fields import JsonObject
from rq.message.guarded import Sender
from rq.queues.control.command import Context, Handler, Ok, Reply, Request
from rq.queues.delivery.delivery import MANY, OWED_BY
from rq.queues.owner.owner import Owner
from rq.rpc import client, loop_client
from rq.spool import outbox
from rq.words.nesting import Json

MOST = 5000  # keys of a request
PATIENCE = 20.0  # seconds that an owner has to answer
_COPY, _SINGLE = "take_copy", "create_message"


class Claim(NamedTuple):
    """A message that is said to be owed, and under which key."""

    key: str
    message: JsonObject
    msg_id: str  # whose attachments go along; "": none do


@dataclass(frozen=True, slots=True)
class _Claims:
    """What a request says of what is owed."""

    by: object  # the queue whose owner is said to owe it
    claims: Sequence[Claim]


def answer(
    ctx: Context, word: str, handler: Handler, request: Request
) -> Reply | Awaitable[Reply]:
    """Answer a command that makes messages; NotPermitted when a guarded queue takes none
    from the one who asks."""
    if ctx.owner.name not in guarded.QUEUES:
        return handler(ctx, request)
    guarded.check(ctx.owner.name, ctx.connection.asker.principal.sender)
    said = _said(word, request)
    if said is None or not said.claims:
        return handler(ctx, request)
    return _proved(ctx, handler, request, said)


def _said(word: str, request: Request) -> _Claims | None:
    """Return what a request says to be owed, None if it is about no new message;
    NotPermitted when it can come neither from an operator nor from an owner."""
    if word == _COPY:
        return _of_copy(request)
    if word == MANY:
        rows = request.get("messages")
        given = rows if isinstance(rows, list) else []
        messages = [row for row in given if isinstance(row, dict)]
        return _Claims(request.get(OWED_BY), _claims(messages))
    claims = _claims([request])
    if word == _SINGLE:  # so the version before delivers: it does not say whose it is
        return _Claims(None, claims)
    if claims:
        text = f"_key {claims[0].key} is one of those under which owners deliver"
        raise BadInput(f"{text}: say another one")
    return None


def _of_copy(request: Mapping[str, Json]) -> _Claims:
    """Return what a copy says. One without the key of an outbox comes from a script, or
    from the relay of this host."""
    key, message = str(request.get("_key", "")), request.get("message")
    if not outbox.IS_KEY.fullmatch(key) or not isinstance(message, dict):
        sender = Sender.RELAY if key else Sender.SCRIPT
        raise NotPermitted(f"it comes from {sender}, not from an owner that owes it")
    msg_id = names.msg_id(request.get("msg_id"))
    return _Claims(request.get("queue"), [Claim(key, message, msg_id)])


def _claims(messages: Sequence[JsonObject]) -> list[Claim]:
    return [
        Claim(key, {n: v for n, v in message.items() if n != "_key"}, "")
        for message in messages
        if isinstance(key := message.get("_key"), str) and outbox.IS_KEY.fullmatch(key)
    ]


async def _proved(
    ctx: Context, handler: Handler, request: Request, said: _Claims
) -> Reply:
    """Answer once everything that is said to be owed has been proved."""
    owner = ctx.owner
    new = [each for each in said.claims if owner.spool.message_of(each.key) is None]
    if new:
        by = _named(owner, said.by)
        entries = await _entries(owner, by, [claim.key for claim in new])
        for claim, entry in zip(new, entries, strict=True):
            _check(owner.name, by, claim, entry)
    reply = handler(ctx, request)
    return await reply if inspect.isawaitable(reply) else reply


def _named(owner: Owner, by: object) -> str:
    """Return the queue that is said to owe something; Busy when it is not said: an owner
    of the version before does not, and will once it has been started again."""
    if by is None:
        raise Busy("the owner that owes this does not say its name; ask again")
    name = names.queue_name(by)
    if not owner.root.queue(name).config.is_file():
        raise NotPermitted(f"there is no queue {name} that could owe this")
    return name


async def _entries(owner: Owner, by: str, keys: Sequence[str]) -> Sequence[Json]:
    """Return what an owner owes under keys, None for what it does not."""
    if by == owner.name:
        return [_entry(owner, key) for key in keys]
    socket = owner.root.queue(by).socket
    try:
        reply = await loop_client.ask(socket, "owes", {"keys": keys}, PATIENCE)
        entries = client.demanded(reply)
    except RQError as error:
        raise Busy(f"queue {by} does not say whether it owes this: {error}") from None
    if not isinstance(entries, list) or len(entries) != len(keys):
        raise Busy(f"queue {by} does not say whether it owes this")
    return entries


def _check(name: str, by: str, claim: Claim, entry: Json) -> None:
    """NotPermitted unless an owner owes just this to this queue."""
    whole = {"dest": name, "message": claim.message, "msg_id": claim.msg_id}
    if entry != whole:
        raise NotPermitted(f"queue {by} owes no such message to {name} as {claim.key}")


# ---- the owner that is asked


def owes(ctx: Context, request: Request) -> Ok[list[Json]]:
    """Answer what is owed under some keys, and None for what is not: dest, message, and
    the message whose attachments go along, "" if none do."""
    keys = request.get("keys")
    if not isinstance(keys, list) or len(keys) > MOST:
        raise BadInput(f"lacking 'keys', a list of at most {MOST}")
    return "ok", [_entry(ctx.owner, str(key)) for key in keys]


def _entry(owner: Owner, key: str) -> Json:
    of = outbox.place_of(key)
    entry = None if of is None else owner.spool.owed.get(of)
    if (
        of is None
        or entry is None
        or entry.key != key
        or of[0] > owner.spool.durable_seq
    ):
        return None
    msg_id = entry.msg_id if entry.files else ""
    # As it comes back from a socket, also when the queue asks itself.
    whole = {"dest": entry.dest, "message": entry.message, "msg_id": msg_id}
    return orjson.loads(orjson.dumps(whole))  # type: ignore[no-any-return]


HANDLERS: dict[str, Handler] = {"owes": owes}
