"""The operation that follows a queue: what happens to its messages, as server-sent events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.errors import BadInput, NoSuchQueue
from rq.index.events import EventView, place_in
from rq.index.store import Place
from rq.web import event_stream
from rq.web.api.operation import OF_OWNERS, Answer, Header, Media, Operation
from rq.web.api.shapes import Limits
from rq.web.event_stream import Wish
from rq.web.site import Site

LAST = "Last-Event-ID"
MOST_QUEUES = 64  # of a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """From where a queue is followed."""

    after: Annotated[
        str | None,
        Limits(longest=60),
        "the id of an event, as Last-Event-ID; without both from now on",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingAll:
    """Which queues are followed, and from where."""

    queue: Annotated[
        str | None,
        Limits(longest=4096),
        "names with commas between; all that may be seen, if absent",
    ] = None
    after: Annotated[
        str | None,
        Limits(longest=4096),
        "the id of an event, as Last-Event-ID; without both from now on",
    ] = None


async def follow(site: Site, req: Request, body: Following, name: str) -> Answer:
    said = req.get_header(LAST) or body.after
    return await _stream(site, req, [name], [place_in(said)] if said else [])


async def follow_all(site: Site, req: Request, body: FollowingAll) -> Answer:
    said = req.get_header(LAST) or body.after
    places = [place_in(text) for text in said.split(",")] if said else []
    return await _stream(site, req, _visible(site, req, body.queue), places)


def _visible(site: Site, req: Request, named: str | None) -> list[str]:
    """Return the queues that a client wants to follow, of those that it may see."""
    principal: Principal = req.context.principal
    queues = [name for name in site.queue_names() if principal.sees(name)]
    if named is not None:
        wanted = named.split(",")
        if missing := [name for name in wanted if name not in queues]:
            raise NoSuchQueue(f"there is no queue {missing[0]!r:.80} that you may see")
        queues = sorted(set(wanted))
    if not 0 < len(queues) <= MOST_QUEUES:
        raise BadInput(
            f"these are {len(queues)} queues, a stream follows 1 to {MOST_QUEUES}: name "
            "some, as ?queue=a,b"
        )
    return queues


async def _stream(
    site: Site, req: Request, queues: Sequence[str], places: Sequence[Place]
) -> Answer:
    stands = getattr(req.context, "stands", lambda: True)
    who = req.context.principal.name
    by_journal: dict[str | None, Place] = {place.journal: place for place in places}
    wish = Wish(queues=queues, places=by_journal, who=who, stands=stands)
    await wish.ask(site)
    for error in wish.silent.values():
        if isinstance(error, NoSuchQueue):  # the others answer later
            raise error
    return Answer(events=event_stream.hub_of(site).follow(wish))


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
    Operation(
        operation_id="followQueues",
        method="GET",
        path="/events",
        role=Role.VIEWER,
        summary="Follow what happens to the messages of several queues in one stream.",
        request=FollowingAll,
        reply=EventView,
        failures=OF_OWNERS,
        handler=follow_all,
        gives=Media.EVENTS,
        headers=(Header(name=LAST, about="the id of the last event that was heard"),),
        shared=True,
    ),
)
