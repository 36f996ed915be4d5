"""The operations of timers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict, cast

from falcon.asgi import Request

from rq.access.roles import Role
from rq.kinds import Kind
from rq.replies import TimerRow, TimerView
from rq.web import views
from rq.web.api.operation import Handler, Operation
from rq.web.deeds import OF_TIMER
from rq.web.site import Site

PLACE = "/timers/{timer}"
_SILENT = (Kind.UNREACHABLE, Kind.OUTCOME_UNKNOWN)
_OF_ONE = (*_SILENT, Kind.NO_SUCH_MESSAGE, Kind.BAD_INPUT)
_OF_QUEUE = (
    *_OF_ONE,
    Kind.NO_SUCH_QUEUE,
    Kind.REFUSED,
    Kind.BUSY,
    Kind.DOWN,
    Kind.CLOSED,
    Kind.NO_ROOM,
    Kind.DISK_FAILED,
    Kind.CANNOT_READ,
)


class Timers(TypedDict):
    """All timers, and what is wrong with files of timers/."""

    timers: Sequence[TimerRow]
    errors: Annotated[Mapping[str, str], "a sentence for each file that is no timer"]


class Fired(TypedDict):
    """A message that was sent by a person's word."""

    url: str


async def list_timers(site: Site, req: Request, body: None) -> Timers:
    status = await views.timers(site.owners)
    return {"timers": status["timers"], "errors": status["errors"]}


async def get_timer(site: Site, req: Request, body: None, timer: str) -> TimerView:
    return await views.timer(site.owners, timer)


async def run_timer(site: Site, req: Request, body: None, timer: str) -> Fired:
    return {"url": str(await site.owners.timers("run", timer))}


def _change(command: str) -> Handler:
    async def change(site: Site, req: Request, body: None, timer: str) -> TimerRow:
        return cast(TimerRow, await site.owners.timers(command, timer))

    return change


def _deed(
    word: str,
    operation_id: str,
    reply: type,
    failures: tuple[Kind, ...],
    handler: Handler,
) -> Operation:
    return Operation(
        operation_id=operation_id,
        method="POST",
        path=f"{PLACE}/{word}",
        role=Role.OPERATOR,
        summary=OF_TIMER[word].about,
        request=None,
        reply=reply,
        failures=failures,
        handler=handler,
    )


ROWS = (
    Operation(
        operation_id="listTimers",
        method="GET",
        path="/timers",
        role=Role.VIEWER,
        summary="List the timers.",
        request=None,
        reply=Timers,
        failures=_SILENT,
        handler=list_timers,
    ),
    Operation(
        operation_id="getTimer",
        method="GET",
        path=PLACE,
        role=Role.VIEWER,
        summary="Show a timer, its next fires, and its last with their outcomes.",
        request=None,
        reply=TimerView,
        failures=_OF_ONE,
        handler=get_timer,
    ),
    _deed("run", "runTimer", Fired, _OF_QUEUE, run_timer),
    _deed("ack", "ackTimer", TimerRow, _OF_ONE, _change("ack")),
    _deed("pause", "pauseTimer", TimerRow, _OF_ONE, _change("pause")),
    _deed("resume", "resumeTimer", TimerRow, _OF_ONE, _change("resume")),
)
