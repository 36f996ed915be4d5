"""The broker: its queues, who is connected, and whether it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TypedDict

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.config import broker as config
from rq.config.broker import BrokerConfig
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.resp import Value
from rq.rpc.broker import answers, questions
from rq.rpc.broker.questions import Words, ask_all
from rq.rpc.broker.rows import ClientRow, NodeRow, QueueRow
from rq.web.pages import page
from rq.web.routes import Routes
from rq.web.site import Site

_MOST_SHOWN = 200  # queues, and clients
PATIENCE = 3.0  # seconds until a page says that the broker does not answer


class State(TypedDict):
    """Whether there is a broker to ask."""

    time: float
    enabled: bool
    where: str  # HOST:PORT
    port: int
    trouble: str  # why it does not answer; "" when it does


class Facts(State):
    """What the page shows."""

    totals: dict[str, str]
    queues: list[QueueRow]
    clients: list[ClientRow]
    nodes: list[NodeRow]  # its own first


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of the broker and its twin."""

    async def show(req: Request, resp: Response) -> None:
        facts = await asyncio.to_thread(_facts, site.root)
        queues, clients = facts["queues"], facts["clients"]
        number = int(facts["totals"].get("queues", len(queues)))
        values = {
            "facts": facts,
            "queues": queues[:_MOST_SHOWN],
            "more_queues": max(0, number - min(len(queues), _MOST_SHOWN)),
            "clients": clients[:_MOST_SHOWN],
            "more_clients": max(0, len(clients) - _MOST_SHOWN),
        }
        await page.show(req, resp, site, "broker.html", values)

    for path in ("/broker", "/broker.json"):
        routes.get(path, show, Role.VIEWER)


def _facts(root: Root) -> Facts:
    commands = questions.TOTALS, questions.QUEUES, questions.CLIENTS, questions.NODES
    state, replies = ask(root, commands)
    if not replies:
        return {**state, "totals": {}, "queues": [], "clients": [], "nodes": []}
    return {
        **state,
        "totals": answers.totals_in(replies[0]),
        "queues": answers.queues_in(replies[1]),
        "clients": answers.clients_in(replies[2]),
        "nodes": answers.nodes_in(replies[3]),
    }


def ask(root: Root, commands: Sequence[Words]) -> tuple[State, list[Value]]:
    """Return whether there is a broker, and its answers; none when it is off, or does not
    answer."""
    chosen = BrokerConfig()
    replies: list[Value] = []
    trouble = ""
    try:
        chosen = config.read(root.broker_config)
        if chosen.enabled:
            replies = ask_all(root, commands, PATIENCE)
    except (BadConfig, RQError) as error:
        trouble = str(error)
    state: State = {
        "time": time.time(),
        "enabled": chosen.enabled,
        "where": f"{chosen.addr}:{chosen.port}",
        "port": chosen.port,
        "trouble": trouble,
    }
    return state, replies
