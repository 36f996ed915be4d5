"""The pages: each gathers facts and shows them as HTML, or as JSON to programs."""

from __future__ import annotations

from rq.access.roles import Role
from rq.web.pages import (
    assets,
    broker,
    broker_queue,
    bulk,
    deliveries,
    history,
    log,
    notices,
    overview,
    queue,
    queue_admin,
    relay,
    system,
    timers,
    txn,
)
from rq.web.pages.confirm import Confirm
from rq.web.pages.forms import Forms, Refill
from rq.web.pages.message import MessagePage
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
    ):
        page.add_routes(routes, site)
    assets.add_routes(routes)
    forms, confirm = Forms(site), Confirm(site)
    site.refilled = Refill(forms)
    _queue_routes(routes, site, forms, confirm)


def _queue_routes(routes: Routes, site: Site, forms: Forms, confirm: Confirm) -> None:
    message = MessagePage(site)
    routes.get("/q/{name}/new_message", forms.new_message, Role.PRODUCER)
    routes.get("/q/{name}/{msg_id}", message.on_get, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/confirm/{verb}", confirm.of_message, Role.OPERATOR)
    routes.get("/q/{name}/{msg_id}/edit", forms.edit, Role.OPERATOR)
