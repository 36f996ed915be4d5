"""The pages: each gathers facts and shows them as HTML, or as JSON to programs."""

from __future__ import annotations

from rq.access.roles import Role
from rq.web.pages import (
    assets,
    broker,
    broker_queue,
    bulk,
    confirm,
    deliveries,
    history,
    log,
    message,
    notices,
    overview,
    queue,
    queue_admin,
    relay,
    system,
    timers,
    txn,
)
from rq.web.pages.forms import Forms, Refill
from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add every page, its twin, and the files that pages load."""
    for page in (
        overview,
        timers,
        system,
        broker,
        broker_queue,
        notices,
        history,
        queue,
        queue_admin,
        log,
        deliveries,
        txn,
        bulk,
        relay,
        message,
        confirm,
    ):
        page.add_routes(routes, site)
    assets.add_routes(routes)
    forms = Forms(site)
    site.refilled = Refill(forms)
    routes.get("/q/{name}/new_message", forms.new_message, Role.PRODUCER)
    routes.get("/q/{name}/{msg_id}/edit", forms.edit, Role.OPERATOR)
