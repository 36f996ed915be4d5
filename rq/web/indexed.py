"""Asks the index for a reader: in a thread, and only of queues that the reader may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from falcon.asgi import Request

from rq.access.roles import Principal
from rq.errors import RQError
from rq.index import doors
from rq.index.doors import RunsView
from rq.index.questions import Index
from rq.index.rows import Freshness, RunsQuestion
from rq.replies import TimerMiss
from rq.web.answers import for_asker
from rq.web.site import Site

T = TypeVar("T")
Visible = frozenset[str] | None  # the queues that the reader may see; None: all
Question = Callable[[Index, Visible], T]
Row = TypeVar("Row")


async def answer(
    site: Site, req: Request, question: Question[T]
) -> tuple[T, Freshness]:
    """Return what the index answers, and how far it has read. Refused: it is off.
    Unreachable: it is not there yet."""
    seen = visible(site, req.context.principal)
    return await site.pools.search(_ask, site, question, seen)


def _ask(site: Site, question: Question[T], seen: Visible) -> tuple[T, Freshness]:
    with Index.at(site.root) as index:
        return question(index, seen), index.freshness()


async def runs(
    site: Site, req: Request, fields: Mapping[str, str], now: float
) -> RunsView:
    """Return what ran in a span of time, and what timers missed, of what the reader may
    see."""
    question = doors.runs_question(fields, now)
    rows, fresh = await answer(
        site, req, lambda index, seen: index.runs(question, seen)
    )
    misses = await _misses(site, req, question)
    view = doors.runs_view(question, rows, misses, fresh, now)
    return {**view, "runs": for_reader(req, view["runs"])}


async def _misses(site: Site, req: Request, question: RunsQuestion) -> list[TimerMiss]:
    """Return what timers missed; nothing, while they do not answer."""
    request = doors.misses_request(question)
    try:
        misses = cast(list[TimerMiss], await site.owners.timers("misses", request))
    except RQError:
        return []
    principal: Principal = req.context.principal
    if principal.is_limited:
        misses = [miss for miss in misses if principal.sees(miss["queue"])]
    return for_reader(req, misses)


def visible(site: Site, principal: Principal) -> Visible:
    """Return the queues of which a reader may hear anything."""
    if not principal.is_limited:
        return None
    return frozenset(name for name in site.queue_names() if principal.sees(name))


def for_reader(req: Request, rows: Sequence[Row]) -> list[Row]:
    """Return rows, each of a `queue`, as the reader may see them."""
    return [
        for_asker(req, row, str(cast(Mapping[str, object], row)["queue"]))
        for row in rows
    ]
