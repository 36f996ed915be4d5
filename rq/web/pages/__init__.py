"""The pages: each gathers facts and shows them as HTML, or as JSON to programs."""

from __future__ import annotations

from rq.web.pages import (
    assets,
    broker,
    broker_queue,
    bulk,
    confirm,
    days,
    deliveries,
    failures,
    flows,
    forms,
    history,
    log,
    message,
    notices,
    overview,
    queue,
    queue_admin,
    relay,
    runs,
    search,
    system,
    tables,
    timers,
    txn,
)
from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add every page, its twin, and the files that pages load."""
    for page in (
        overview,
        runs,
        failures,
        flows,
        search,
        timers,
        system,
        broker,
        broker_queue,
        notices,
        days,
        history,
        tables,
        queue,
        queue_admin,
        log,
        deliveries,
        txn,
        bulk,
        relay,
        message,
        forms,
        confirm,
    ):
        page.add_routes(routes, site)
    assets.add_routes(routes)
