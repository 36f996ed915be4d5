"""The operation that follows a queue: what happens to its messages, as server-sent events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from falcon.asgi import Request

from rq.access.roles import Role
from rq.index.events import EventView, place_in
from rq.web import event_stream
from rq.web.api.operation import OF_OWNERS, Answer, Header, Media, Operation
from rq.web.api.shapes import Limits
from rq.web.event_stream import Follower
from rq.web.site import Site

LAST = "Last-Event-ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """From where a queue is followed."""

    after: Annotated[
        str | None,
        Limits(longest=60),
        "the id of an event, as Last-Event-ID; without both from now on",
    ] = None


async def follow(site: Site, req: Request, body: Following, name: str) -> Answer:
    said = req.get_header(LAST) or body.after
    place = place_in(said) if said else None
    head = await event_stream.now(site, name)
    follower = Follower(place or head, is_resumed=place is not None)
    follower.who = req.context.principal.name
    follower.stands = getattr(req.context, "stands", follower.stands)
    return Answer(events=event_stream.hub_of(site).follow(name, head, follower))


ROWS = (
    Operation(
        operation_id="followQueue",
        method="GET",
        path="/queues/{name}/events",
        role=Role.VIEWER,
        summary="Follow what happens to the messages of a queue, as server-sent events.",
        request=Following,
        reply=EventView,
        failures=OF_OWNERS,
        handler=follow,
        gives=Media.EVENTS,
        headers=(Header(name=LAST, about="the id of the last event that was heard"),),
    ),
)
