"""The pages: each gathers facts and shows them as HTML, or as JSON to programs."""

from __future__ import annotations

from rq.access.roles import Role
from rq.transfers import QUEUE
from rq.web.livelog import Hub
from rq.web.pages import (
    assets,
    broker,
    broker_queue,
    deliveries,
    history,
    notices,
    overview,
    queue_admin,
    system,
    timers,
    txn,
)
from rq.web.pages.bulk import BulkPage
from rq.web.pages.confirm import Confirm
from rq.web.pages.forms import Forms, Refill
from rq.web.pages.log import LogPages
from rq.web.pages.message import MessagePage
from rq.web.pages.queue import QueuePage
from rq.web.pages.relay import RelayPage
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
        queue_admin,
        deliveries,
        txn,
    ):
        page.add_routes(routes, site)
    assets.add_routes(routes)
    forms, confirm = Forms(site), Confirm(site)
    site.refilled = Refill(forms)
    relay = RelayPage(site)
    routes.get("/relay", relay.on_get, Role.VIEWER, queue=QUEUE)
    routes.get("/relay.json", relay.on_get, Role.VIEWER, queue=QUEUE)
    routes.get("/relay/confirm/{verb}", relay.of_all, Role.OPERATOR, queue=QUEUE)
    routes.get(
        "/relay/{msg_id}/confirm/{verb}", relay.of_one, Role.OPERATOR, queue=QUEUE
    )
    _queue_routes(routes, site, forms, confirm)


def _queue_routes(routes: Routes, site: Site, forms: Forms, confirm: Confirm) -> None:
    queue, message = QueuePage(site), MessagePage(site)
    site.livelog = hub = Hub(site)
    log = LogPages(site, hub)
    routes.get("/q/{name}", queue.on_get, Role.VIEWER)
    routes.get("/q/{name}/queue.json", queue.on_get, Role.VIEWER)
    routes.get("/q/{name}/new_message", forms.new_message, Role.PRODUCER)
    bulk = BulkPage(site)
    routes.get("/q/{name}/bulk", bulk.on_get, Role.VIEWER)
    routes.get("/q/{name}/bulk.json", bulk.on_get, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}", message.on_get, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/confirm/{verb}", confirm.of_message, Role.OPERATOR)
    routes.get("/q/{name}/{msg_id}/edit", forms.edit, Role.OPERATOR)
    routes.get("/q/{name}/{msg_id}/log", log.page, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/log.json", log.twin, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/follow", log.follow, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/tailviewlog/{file}", log.tail_of_log, Role.VIEWER)
    routes.get(
        "/q/{name}/{msg_id}/tailview/{file}", log.tail_of_attachment, Role.VIEWER
    )
