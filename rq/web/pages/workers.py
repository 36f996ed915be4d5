"""The workers elsewhere, as the page of their queue shows them."""

from __future__ import annotations

from dataclasses import dataclass

from rq import elsewhere
from rq.replies import Elsewhere, LeasesView, RemoteWorker

_WORKERS = 30  # of those elsewhere that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers elsewhere that a page has room for."""

    rows: list[RemoteWorker]
    more: int  # that are left out
    terms: str  # on which they get messages; "" when they get none any more
    start: str  # the command that starts one


def choose(view: LeasesView | None, every: Elsewhere | None, url: str) -> Workers:
    """Return the workers to show, in an order that lasts: those that are there first."""
    if view is None:
        return Workers(rows=[], more=0, terms="", start="")
    rows = sorted(view["workers"], key=lambda row: (not row["there"], row["by"]))
    pull, there = view["pull"], 0 if every is None else every["workers"]
    return Workers(
        rows=rows[:_WORKERS],
        more=max(0, max(len(rows), there) - _WORKERS),
        terms="" if pull is None else elsewhere.terms(pull),
        start="" if pull is None else elsewhere.command(url, pull),
    )
