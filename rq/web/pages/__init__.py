"""The pages: each gathers facts and shows them as HTML, or as JSON to programs."""

from __future__ import annotations

from rq.access.roles import Role
from rq.transfers import QUEUE
from rq.web.livelog import Hub
from rq.web.pages.assets import Assets
from rq.web.pages.broker import BrokerPage
from rq.web.pages.broker_queue import BrokerQueuePages
from rq.web.pages.bulk import BulkPage
from rq.web.pages.confirm import Confirm
from rq.web.pages.deliveries import OwedQuestions
from rq.web.pages.forms import Forms, Refill
from rq.web.pages.history import HistoryPage
from rq.web.pages.log import LogPages
from rq.web.pages.message import MessagePage
from rq.web.pages.overview import Overview
from rq.web.pages.queue import QueuePage
from rq.web.pages.relay import RelayPage
from rq.web.pages.system import System
from rq.web.pages.timers import TimersPage
from rq.web.pages.txn import TransactionPages
from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add every page, its twin, and the files that pages load."""
    assets, forms, confirm = Assets(), Forms(site), Confirm(site)
    site.refilled = Refill(forms)
    routes.get("/static/{path:path}", assets.on_get, Role.VIEWER, shared=True)
    routes.get("/css/rq.css", assets.css, Role.VIEWER, shared=True)
    routes.get("/favicon.ico", assets.icon, Role.VIEWER, shared=True)
    overview = Overview(site)
    for name in ("/", "/overview.json"):
        routes.get(name, overview.on_get, Role.VIEWER, shared=True)
    timers = TimersPage(site)
    routes.get("/timers/{timer}", timers.of_one, Role.VIEWER)
    for name, handler in (
        ("/timers", timers.of_all),
        ("/system", System(site).on_get),
        ("/broker", BrokerPage(site).on_get),
    ):
        routes.get(name, handler, Role.VIEWER)
        routes.get(f"{name}.json", handler, Role.VIEWER)
    _broker_routes(routes, BrokerQueuePages(site))
    routes.get("/new_queue", forms.new_queue, Role.ADMIN)
    relay = RelayPage(site)
    routes.get("/relay", relay.on_get, Role.VIEWER, queue=QUEUE)
    routes.get("/relay.json", relay.on_get, Role.VIEWER, queue=QUEUE)
    routes.get("/relay/confirm/{verb}", relay.of_all, Role.OPERATOR, queue=QUEUE)
    routes.get(
        "/relay/{msg_id}/confirm/{verb}", relay.of_one, Role.OPERATOR, queue=QUEUE
    )
    routes.get(
        "/owed/{name}/{key}/confirm/{verb}", OwedQuestions(site).on_get, Role.OPERATOR
    )
    history = HistoryPage(site)
    for name in ("/history", "/history.json"):
        routes.get(name, history.of_all, Role.VIEWER)
        routes.get(f"/q/{{name}}{name}", history.of_queue, Role.VIEWER)
    _queue_routes(routes, site, forms, confirm)


def _broker_routes(routes: Routes, broker: BrokerQueuePages) -> None:
    # Names of the broker's queues are none of RQ's: who may ask of some queues of RQ may
    # not ask of these.
    for end in ("", ".json"):
        routes.get(f"/broker/q/{{queue}}{end}", broker.of_queue, Role.VIEWER)
        routes.get(f"/broker/job/{{job}}{end}", broker.of_job, Role.VIEWER)
    routes.get("/broker/q/{queue}/confirm/{verb}", broker.ask_of_queue, Role.OPERATOR)
    routes.get("/broker/job/{job}/confirm/{verb}", broker.ask_of_job, Role.OPERATOR)


def _queue_routes(routes: Routes, site: Site, forms: Forms, confirm: Confirm) -> None:
    queue, message = QueuePage(site), MessagePage(site)
    site.livelog = hub = Hub(site)
    log = LogPages(site, hub)
    routes.get("/q/{name}", queue.on_get, Role.VIEWER)
    routes.get("/q/{name}/queue.json", queue.on_get, Role.VIEWER)
    routes.get("/q/{name}/new_message", forms.new_message, Role.PRODUCER)
    routes.get("/q/{name}/confirm/{verb}", confirm.of_queue, Role.OPERATOR)
    txn = TransactionPages(site)
    routes.get("/q/{name}/txn", txn.of_queue, Role.VIEWER)
    routes.get("/q/{name}/txn.json", txn.of_queue, Role.VIEWER)
    routes.get("/q/{name}/txn/{txn}", txn.of_one, Role.VIEWER)
    routes.get("/q/{name}/txn/{txn}/confirm/{verb}", txn.question, Role.OPERATOR)
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
