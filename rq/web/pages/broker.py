"""The broker: its queues, and who is connected."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypedDict

from falcon.asgi import Request, Response

from rq import broker_client
from rq.broker_client import ClientRow, QueueRow
from rq.config import broker as config
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.web.pages import page

if TYPE_CHECKING:
    from rq.web.site import Site

_MOST_SHOWN = 200  # queues, and clients


class Facts(TypedDict):
    """What the page shows."""

    time: float
    enabled: bool
    where: str
    trouble: str  # why it does not answer; "" when it does
    figures: dict[str, str]
    queues: list[QueueRow]
    clients: list[ClientRow]


class BrokerPage:
    """GET /broker and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response) -> None:
        facts = await asyncio.to_thread(_facts, self._site.root)
        queues, clients = facts["queues"], facts["clients"]
        values = {
            "facts": facts,
            "queues": queues[:_MOST_SHOWN],
            "more_queues": max(0, len(queues) - _MOST_SHOWN),
            "clients": clients[:_MOST_SHOWN],
            "more_clients": max(0, len(clients) - _MOST_SHOWN),
        }
        await page.show(req, resp, self._site, "broker.html", values)


def _facts(root: Root) -> Facts:
    facts: Facts = {
        "time": time.time(),
        "enabled": False,
        "where": "",
        "trouble": "",
        "figures": {},
        "queues": [],
        "clients": [],
    }
    try:
        chosen = config.read(root.broker_config)
        facts["enabled"], facts["where"] = (
            chosen.enabled,
            f"{chosen.addr}:{chosen.port}",
        )
        if chosen.enabled:
            facts["figures"] = broker_client.figures(root)
            facts["queues"] = broker_client.queues(root)
            facts["clients"] = broker_client.clients(root)
    except (BadConfig, RQError) as error:
        facts["trouble"] = str(error)
    return facts
