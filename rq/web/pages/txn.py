"""The transactions of a queue: what is prepared and not decided, and what was decided."""

from __future__ import annotations

import time
from typing import cast

from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.replies import TransactionView
from rq.web import forms, views
from rq.web.answers import say
from rq.web.messages import as_preparer
from rq.web.pages import confirm, page
from rq.web.pages.confirm import Question, Subject
from rq.web.routes import Routes
from rq.web.site import Site

_UNDECIDED = ("open", "ready")
_DECIDED = 50
_IDS = 200
QUESTIONS = {
    "abort": Question(
        title="Abort this transaction?",
        sentence="Its prepared messages are removed, and whoever opened it can no longer "
        "commit it. This cannot be undone.",
        button="Abort the transaction",
        field=("_method", "abort"),
        danger=True,
    ),
}


def add_routes(routes: Routes, site: Site) -> None:
    """Add the pages of transactions, the question before one is aborted, and its answer."""
    pages = TransactionPages(site)
    routes.get("/q/{name}/txn", pages.of_queue, Role.VIEWER)
    routes.get("/q/{name}/txn.json", pages.of_queue, Role.VIEWER)
    routes.get("/q/{name}/txn/{txn}", pages.of_one, Role.VIEWER)
    routes.post("/q/{name}/txn/{txn}", pages.change, Role.PRODUCER)
    routes.get("/q/{name}/txn/{txn}/confirm/{verb}", pages.question, Role.OPERATOR)


class TransactionPages:
    """/q/NAME/txn and what is below it; for programs: `api.transactions`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_queue(self, req: Request, resp: Response, name: str) -> None:
        page.check_queue(self._site, name)
        every = await views.transactions(self._site.owners, name, {"limit": _DECIDED})
        rows = [listed_txn(view) for view in every]
        values = {
            "facts": {"time": time.time(), "queue": name, "transactions": rows},
            "queue_name": name,
            "open": [row for row in rows if row["state"] in _UNDECIDED],
            "decided": [row for row in rows if row["state"] not in _UNDECIDED],
            "most_decided": _DECIDED,
        }
        await page.show(req, resp, self._site, "txns.html", values)

    async def of_one(self, req: Request, resp: Response, name: str, txn: str) -> None:
        row = listed_txn(await self._transaction(name, txn))
        values = {"facts": row, "row": row, "queue_name": name}
        await page.show(req, resp, self._site, "txn.html", values)

    async def question(
        self, req: Request, resp: Response, name: str, txn: str, verb: str
    ) -> None:
        question = confirm.chosen(QUESTIONS, verb)
        view = await self._transaction(name, txn)
        base = self._site.url(f"/q/{name}/txn")
        here = f"{base}/{view['txn']}"
        subject = Subject(
            about=f"{view['txn']} of {name}: {view['messages']:,} prepared",
            action=here,
            cancel=here,
            back=base,
        )
        await confirm.ask(req, resp, self._site, question, subject)

    async def change(self, req: Request, resp: Response, name: str, txn: str) -> None:
        """Do one of QUESTIONS: abort it."""
        form = await forms.read(req)
        forms.method(form, QUESTIONS)
        request = as_preparer(req, {"txn": txn})
        reply = await self._site.owners.ask(name, "abort_txn", request)
        here = f"/q/{name}/txn"
        say(self._site, req, resp, form, reply, here, f"transaction {txn} is aborted")

    async def _transaction(self, name: str, txn: str) -> TransactionView:
        page.check_queue(self._site, name)
        request = {"txn": txn, "limit": _IDS}
        return await views.transaction(self._site.owners, name, request)


class TransactionRow(TransactionView, total=False):
    """A transaction as the pages show it."""

    opened: float  # epoch seconds


def listed_txn(view: TransactionView) -> TransactionRow:
    """Return a transaction with when it was opened."""
    opened = names.created(view["txn"])
    return cast(TransactionRow, {"key": None, "ids": [], **view, "opened": opened})
