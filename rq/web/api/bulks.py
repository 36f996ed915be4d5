"""The operations that do one thing to all messages of a queue that a filter means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, cast

from falcon.asgi import Request

from rq.access.roles import Role
from rq.kinds import Kind
from rq.message.action import Door
from rq.message.actions import Word, at
from rq.replies import BulkChoice, BulkView
from rq.web.api.messages import MessageFilter
from rq.web.api.operation import OF_OWNERS, PREFIX, Answer, Header, Operation
from rq.web.forms import Form
from rq.web.messages import check_move, who
from rq.web.site import Site
from rq.words.nesting import Json

if TYPE_CHECKING:
    _Word = str
else:
    _Word = Literal[tuple(at(Door.BULK))]

_PLACE = "/queues/{name}/bulk"
_OF_ONE = (*OF_OWNERS, Kind.NO_SUCH_MESSAGE)
_LOCATION = Header(name="Location", about="where it is shown how far it is")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBulk:
    """What is done to which messages."""

    action: _Word
    filter: MessageFilter
    to: Annotated[
        str | float | None,
        "due: epoch seconds; move: a queue; priority: 0 to 9; hold: why",
    ] = None


class BulkViews(TypedDict):
    """Those that are at work, and the last that have ended, the last first."""

    bulks: list[BulkView]


async def begin(site: Site, req: Request, body: NewBulk, name: str) -> Answer:
    if body.action == Word.MOVE and isinstance(body.to, str):
        check_move(req, name, body.to)
    req.context.form = Form([("action", body.action)])  # as a form: for the audit log
    request = {**asdict(body), "who": who(req)}
    view = cast(BulkView, await site.owners.demand(name, "bulk", request))
    place = f"{PREFIX}{_PLACE.format(name=name)}/{view['bulk']}"
    return Answer(value=view, headers={_LOCATION.name: site.url(place)})


async def count(site: Site, req: Request, body: NewBulk, name: str) -> BulkChoice:
    request = {**asdict(body), "dry_run": True}
    return cast(BulkChoice, await site.owners.demand(name, "bulk", request))


async def list_all(site: Site, req: Request, body: None, name: str) -> BulkViews:
    views = await site.owners.demand(name, "list_bulks", {})
    return {"bulks": cast(list[BulkView], views)}


async def get(site: Site, req: Request, body: None, name: str, bulk: str) -> BulkView:
    return await _about(site, name, "show_bulk", bulk)


async def cancel(
    site: Site, req: Request, body: None, name: str, bulk: str
) -> BulkView:
    return await _about(site, name, "cancel_bulk", bulk)


async def _about(site: Site, name: str, command: str, bulk: str) -> BulkView:
    request: dict[str, Json] = {"bulk": bulk}
    return cast(BulkView, await site.owners.demand(name, command, request))


ROWS = (
    Operation(
        operation_id="beginBulk",
        method="POST",
        path=_PLACE,
        role=Role.OPERATOR,
        summary="Do one thing to all messages that match now.",
        request=NewBulk,
        reply=BulkView,
        failures=OF_OWNERS,
        handler=begin,
        status=202,
        reply_headers=(_LOCATION,),
    ),
    Operation(
        operation_id="countBulk",
        method="POST",
        path=f"{_PLACE}/count",
        role=Role.OPERATOR,
        summary="Count the messages that match, and change none.",
        request=NewBulk,
        reply=BulkChoice,
        failures=OF_OWNERS,
        handler=count,
    ),
    Operation(
        operation_id="listBulks",
        method="GET",
        path=_PLACE,
        role=Role.VIEWER,
        summary="List those that are at work, and the last that have ended.",
        request=None,
        reply=BulkViews,
        failures=OF_OWNERS,
        handler=list_all,
    ),
    Operation(
        operation_id="getBulk",
        method="GET",
        path=f"{_PLACE}/{{bulk}}",
        role=Role.VIEWER,
        summary="Show how far one is.",
        request=None,
        reply=BulkView,
        failures=_OF_ONE,
        handler=get,
    ),
    Operation(
        operation_id="cancelBulk",
        method="POST",
        path=f"{_PLACE}/{{bulk}}/cancel",
        role=Role.OPERATOR,
        summary="End one, unless it has ended; what it has changed stays so.",
        request=None,
        reply=BulkView,
        failures=_OF_ONE,
        handler=cancel,
    ),
)
