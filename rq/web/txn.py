"""Transactions from their pages; for programs: `api.transactions`."""

from __future__ import annotations

from typing import cast

import falcon
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.replies import TransactionView
from rq.web import forms
from rq.web.answers import say
from rq.web.messages import as_preparer
from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add the routes of transactions."""
    transactions = Transactions(site)
    routes.post("/q/{name}/txn/{txn}", transactions.change, Role.PRODUCER)


class Transactions:
    """The transactions of a queue."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def change(self, req: Request, resp: Response, name: str, txn: str) -> None:
        """Abort one from its page."""
        form = await forms.read(req)
        if form.get("_method") != "abort":
            raise falcon.HTTPBadRequest(description="_method is not abort")
        request = as_preparer(req, {"txn": txn})
        reply = await self._site.owners.ask(name, "abort_txn", request)
        here = f"/q/{name}/txn"
        say(self._site, req, resp, form, reply, here, f"transaction {txn} is aborted")


class TransactionRow(TransactionView, total=False):
    """A transaction as the pages show it."""

    opened: float  # epoch seconds


def listed(view: TransactionView) -> TransactionRow:
    """Return a transaction with when it was opened."""
    opened = names.created(view["txn"])
    return cast(TransactionRow, {"key": None, "ids": [], **view, "opened": opened})
