"""The operations that change what becomes of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict, cast

from falcon.asgi import Request

from rq import client
from rq.access.roles import Role
from rq.kinds import Kind
from rq.message.fields import LATEST
from rq.message.rank import LEAST, MOST
from rq.nesting import Json
from rq.web.api import messages
from rq.web.api.operation import OF_OWNERS, Answer, Handler, Header, Operation
from rq.web.api.shapes import Limits
from rq.web.messages import as_preparer, check_move, checked, who, with_user
from rq.web.site import Site

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


@dataclass(frozen=True, slots=True)
class _Action:
    """A command of the owner about one message."""

    name: str  # in the path
    command: str
    summary: str
    role: Role = Role.OPERATOR
    request: type | None = None


class Change(TypedDict, total=False):
    """When a message runs; at least one of them."""

    priority: Annotated[
        int, Limits(least=LEAST, most=MOST), "of those that are due 9 starts first"
    ]
    due: Annotated[float, Limits(least=0, most=LATEST), "epoch seconds"]


class Hold(TypedDict, total=False):
    """How a message is held."""

    why: Annotated[str, "shown with the message; at most 500 characters"]


_ACTIONS = (
    _Action("run", "run_message", "Run a waiting message before all others."),
    _Action(
        "set", "set_message", "Change when a waiting message runs.", request=Change
    ),
    _Action("retry", "retry_message", "Run a message in err again."),
    _Action("hold", "hold_message", "Let a waiting message wait.", request=Hold),
    _Action("release", "release_message", "Let a message go on that is held."),
    _Action("cancel", "cancel_message", "End a running message; it goes to err."),
    _Action("cancelBatch", "cancel_batch", "End the batch that a message runs in."),
    _Action("dismiss", "ack_errs", "Acknowledge a message in err."),
    _Action("reopen", "reopen_message", "Take an acknowledgement back."),
    _Action("delete", "delete_message", "Remove a message that does not run."),
    _Action(
        "commit", "commit_message", "Accept a prepared message.", role=Role.PRODUCER
    ),
)


def _handler(command: str) -> Handler:
    async def act(
        site: Site, req: Request, body: Hold | Change | None, name: str, msg_id: str
    ) -> Acted:
        given = cast("dict[str, Json]", {**(body or {}), **_seen(req)})
        said = {"msg_id": checked(msg_id), "who": who(req), **given}
        request = as_preparer(req, said)
        reply = await site.owners.ask(name, command, request)
        text, is_number = client.demanded(reply), isinstance(reply[1], int)
        acted: Acted = {"msg_id": msg_id, "text": str(text)}
        if is_number:
            acted["text"] = "acknowledged"
        if reply[2:3] == [messages.JOINED]:
            acted["joined"] = str(reply[3])
        return acted

    return act


def _seen(req: Request) -> dict[str, list[str]]:
    """Return as what the asker has seen the message, if the request says so."""
    tags = req.get_header(MATCH.name)
    if tags is None or tags.strip() == "*":
        return {}
    return {"if_version": [tag.strip().strip('"') for tag in tags.split(",")]}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """Where a message goes on."""

    to: Annotated[str, "another queue, or an address of one"]


async def move(
    site: Site, req: Request, body: NewPlace, name: str, msg_id: str
) -> Acted:
    """Let a message go on in another queue, if whoever asks may ask of that, too."""
    check_move(req, name, body.to)
    request = {"msg_id": checked(msg_id), "who": who(req), "to": body.to, **_seen(req)}
    text = await site.owners.demand(name, "move_message", request)
    return {"msg_id": msg_id, "text": str(text)}


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
        site, str(await site.owners.demand(name, "edit_message", changed))
    )


async def clone(site: Site, req: Request, body: None, name: str, msg_id: str) -> Answer:
    """Send a copy of a message that has ended."""
    await messages.check_copy(site, req, name, checked(msg_id))
    request = {"msg_id": msg_id, "who": who(req)}
    url = await site.owners.demand(name, "clone_message", request)
    return messages.sent(site, str(url))


def _row(action: _Action) -> Operation:
    what = action.name.removesuffix("Batch")
    return Operation(
        operation_id=f"{what}{'Batch' if what != action.name else 'Message'}",
        method="POST",
        path=f"{messages.PLACE}/{{msg_id}}/{action.name}",
        role=action.role,
        summary=action.summary,
        request=action.request,
        reply=Acted,
        failures=_FAILURES,
        handler=_handler(action.command),
        headers=(MATCH,),
    )


ROWS = (
    *(_row(action) for action in _ACTIONS),
    Operation(
        operation_id="moveMessage",
        method="POST",
        path=f"{messages.PLACE}/{{msg_id}}/move",
        role=Role.OPERATOR,
        summary="Let a message that waits, or has failed, go on in another queue.",
        request=NewPlace,
        reply=Acted,
        failures=_FAILURES,
        handler=move,
        headers=(MATCH,),
    ),
    Operation(
        operation_id="editMessage",
        method="POST",
        path=f"{messages.PLACE}/{{msg_id}}/edit",
        role=Role.OPERATOR,
        summary="Send a message that has ended again, with other fields; it is seen then.",
        request=Edits,
        reply=messages.Sent,
        failures=(*_FAILURES, Kind.NO_ROOM, Kind.TOO_LARGE),
        handler=edit,
        status=201,
        headers=(MATCH, messages.KEY),
        reply_headers=(messages.LOCATION,),
    ),
    Operation(
        operation_id="cloneMessage",
        method="POST",
        path=f"{messages.PLACE}/{{msg_id}}/clone",
        role=Role.PRODUCER,
        summary="Send a copy of a message that has ended.",
        request=None,
        reply=messages.Sent,
        failures=(*_FAILURES, Kind.NO_ROOM, Kind.TOO_LARGE),
        handler=clone,
        status=201,
        reply_headers=(messages.LOCATION,),
    ),
)
