"""The transactions of a queue: what is prepared and not decided, and what was decided."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq.web.pages import confirm, page
from rq.web.pages.confirm import Asked, Question
from rq.web.pages.queue import known
from rq.web.txn import listed

if TYPE_CHECKING:
    from rq.web.site import Site

_DECIDED = 50
_IDS = 200
QUESTIONS = {
    "abort": Question(
        title="Abort this transaction?",
        sentence="All messages that are prepared in it are removed, and whoever opened "
        "it cannot commit it any more. This cannot be undone.",
        button="Abort the transaction",
        field=("_method", "abort"),
        danger=True,
    ),
}


class TransactionPages:
    """GET /q/NAME/txn and what is below it."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_queue(self, req: Request, resp: Response, name: str) -> None:
        known(self._site, name)
        asked = {"limit": _DECIDED}
        told = await self._site.owners.demand(name, "list_txns", asked)
        found = [listed(one) for one in told]
        values = {
            "facts": {"time": time.time(), "queue": name, "transactions": found},
            "queue_name": name,
            "open": [one for one in found if one["state"] == "open"],
            "decided": [one for one in found if one["state"] != "open"],
            "most_decided": _DECIDED,
        }
        await page.show(req, resp, self._site, "txns.html", values)

    async def of_one(self, req: Request, resp: Response, name: str, txn: str) -> None:
        one = listed(await self._told(name, txn))
        values = {"facts": one, "one": one, "queue_name": name}
        await page.show(req, resp, self._site, "txn.html", values)

    async def question(
        self, req: Request, resp: Response, name: str, txn: str, verb: str
    ) -> None:
        question = confirm.chosen(QUESTIONS, verb)
        one = await self._told(name, txn)
        base = self._site.url(f"/q/{name}/txn")
        here = f"{base}/{one['txn']}"
        asked = Asked(
            about=f"{one['txn']} of {name}: {one['messages']:,} prepared",
            action=here,
            cancel=here,
            back=base,
        )
        await confirm.ask(req, resp, self._site, question, asked)

    async def _told(self, name: str, txn: str) -> Any:
        known(self._site, name)
        asked = {"txn": txn, "limit": _IDS}
        return await self._site.owners.demand(name, "show_txn", asked)
