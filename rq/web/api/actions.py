"""The operations that change what becomes of a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, NotRequired, TypedDict, cast

from falcon.asgi import Request

from rq.access.roles import Role
from rq.errors import WrongState
from rq.kinds import Kind
from rq.message.action import Action, Door
from rq.message.actions import ACTIONS, Word, at
from rq.message.rank import LEAST, MOST
from rq.message.table import LATEST
from rq.rpc import client, wire
from rq.rpc.lines.owners import Reply
from rq.web import reading
from rq.web.api import messages
from rq.web.api.operation import OF_OWNERS, Answer, Handler, Header, Operation
from rq.web.api.shapes import Limits
from rq.web.messages import as_preparer, check_move, checked, who, with_user
from rq.web.routes import Own
from rq.web.site import Site
from rq.words.nesting import Json
from rq.words.states import State, version_of

_EDIT, _CLONE = ACTIONS[Word.EDIT], ACTIONS[Word.CLONE]
# What may be done with a message by who has sent it.
_OF_SENDERS = (Word.COMMIT, Word.CANCEL)
_REMOVED = (State.PREP, State.QUE)  # by a cancel
_FAILURES = (
    *OF_OWNERS,
    Kind.NO_SUCH_MESSAGE,
    Kind.WRONG_STATE,
    Kind.NOT_UNIQUE,
    Kind.CHANGED,
    Kind.UNREADABLE,
    Kind.NOT_WHOLE,
    Kind.REFUSED,
)


MATCH = Header(
    name="If-Match",
    about="the ETag of the message: nothing is done if it has changed since",
)


class Acted(TypedDict):
    """What was done with a message."""

    msg_id: str
    text: str
    joined: NotRequired[Annotated[str, "the address of the equal message that stands"]]


class Change(TypedDict, total=False):
    """When a message runs; at least one of them."""

    priority: Annotated[
        int, Limits(least=LEAST, most=MOST), "of those that are due 9 starts first"
    ]
    due: Annotated[float, Limits(least=0, most=LATEST), "epoch seconds"]


class Hold(TypedDict, total=False):
    """How a message is held."""

    why: Annotated[str, "shown with the message; at most 500 characters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """Where a message goes on."""

    to: Annotated[str, "another queue, or an address of one"]


# The body of an action that is done with something.
_BODIES: Mapping[str, type] = {
    Word.SET: Change,
    Word.HOLD: Hold,
    Word.MOVE: NewPlace,
}


def _handler(action: Action) -> Handler:
    async def act(
        site: Site, req: Request, body: Hold | Change | NewPlace | None, **of: str
    ) -> Acted:
        name, msg_id = of["name"], of["msg_id"]
        if isinstance(body, NewPlace):
            check_move(req, name, body.to)
        given = asdict(body) if isinstance(body, NewPlace) else {**(body or {})}
        request = {"msg_id": checked(msg_id), "who": who(req), **given, **_seen(req)}
        request = as_preparer(req, request)
        reply = await site.owners.ask(name, action.command, request)
        if action.word is Word.CANCEL and _is_no_runner(reply):
            reply = await _remove(site, name, request)
        text = client.demanded(reply)
        if text == action.reply == 1:  # how many: it is one
            text = action.done.removeprefix("is ")
        acted: Acted = {"msg_id": msg_id, "text": str(text)}
        if reply[2:3] == [messages.JOINED]:
            acted["joined"] = str(reply[3])
        return acted

    return act


def _is_no_runner(reply: Reply) -> bool:
    error = wire.failure_in(reply)
    return error is not None and error.kind is Kind.WRONG_STATE


async def _remove(site: Site, name: str, wanted: Mapping[str, Json]) -> Reply:
    """Remove a message that is to be cancelled and does not run, as it is seen now: one
    that has ended meanwhile stays, and so does what is known of it."""
    view = await reading.message(site, name, str(wanted["msg_id"]))
    if view["state"] not in _REMOVED:
        raise WrongState(f"msg has ended, it is in {view['state']}")
    request = {"if_version": [version_of(view)], **wanted}
    return await site.owners.ask(name, ACTIONS[Word.DELETE].command, request)


def _seen(req: Request) -> dict[str, list[str]]:
    """Return as what the asker has seen the message, if the request says so."""
    tags = req.get_header(MATCH.name)
    if tags is None or tags.strip() == "*":
        return {}
    return {"if_version": [tag.strip().strip('"') for tag in tags.split(",")]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """The fields of a message that are other in the new one; null: it is left out."""

    changes: Mapping[str, object]


async def edit(site: Site, req: Request, body: Edits, name: str, msg_id: str) -> Answer:
    """Send a message that has ended again, with other fields."""
    await messages.check_copy(site, req, name, checked(msg_id))
    request: dict[str, object] = {"msg_id": msg_id, "who": who(req), **_seen(req)}
    if key := req.get_header(messages.KEY.name):
        request["_key"] = key
    changed = with_user(
        req, cast("dict[str, Json]", {**request, "changes": body.changes})
    )
    return messages.sent(
        site, str(await site.owners.demand(name, _EDIT.command, changed))
    )


async def clone(site: Site, req: Request, body: None, name: str, msg_id: str) -> Answer:
    """Send a copy of a message that has ended."""
    await messages.check_copy(site, req, name, checked(msg_id))
    request = {"msg_id": msg_id, "who": who(req)}
    url = await site.owners.demand(name, _CLONE.command, request)
    return messages.sent(site, str(url))


def _row(action: Action, word: str) -> Operation:
    """Return the operation of an action by one of its words."""
    what, _, of_what = word.partition("_")
    of_what = of_what.capitalize()
    return Operation(
        operation_id=f"{what}{of_what or 'Message'}",
        method="POST",
        path=f"{messages.PLACE}/{{msg_id}}/{what}{of_what}",
        role=Role(action.role),
        summary=action.about,
        request=_BODIES.get(action.word),
        reply=Acted,
        failures=_FAILURES,
        handler=_handler(action),
        own=Own.MESSAGE if action.word in _OF_SENDERS else Own.NOTHING,
        headers=(MATCH,),
        deprecated=word != action.word,
    )


def _copy(row: Operation, shape: type | None, handler: Handler) -> Operation:
    """Return the operation of an action that makes a new message, and answers with it."""
    headers = (MATCH, messages.KEY) if shape is not None else ()
    return replace(
        row,
        request=shape,
        reply=messages.Sent,
        failures=(*_FAILURES, Kind.NO_ROOM, Kind.TOO_LARGE),
        handler=handler,
        status=201,
        headers=headers,
        reply_headers=(messages.LOCATION,),
    )


def _rows() -> Iterator[Operation]:
    for word, action in at(Door.API).items():
        row = _row(action, word)
        if action is _EDIT:
            row = _copy(row, Edits, edit)
        elif action is _CLONE:
            row = _copy(row, None, clone)
        yield row


ROWS = tuple(_rows())
