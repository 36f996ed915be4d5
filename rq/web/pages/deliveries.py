"""Copies and webhooks that could not be delivered, and what a person decides of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.config import secrets
from rq.replies import Owed
from rq.web import forms, views
from rq.web.answers import say
from rq.web.messages import who
from rq.web.pages import confirm, page
from rq.web.pages.confirm import Question, Subject
from rq.web.routes import Routes
from rq.web.site import Site

QUESTIONS = {
    "delivered": Question(
        title="Has this delivery arrived?",
        sentence="Look at the target first. It then counts as delivered, and nothing more "
        "is sent.",
        button="It has arrived",
        field=("_method", "delivered"),
    ),
    "again": Question(
        title="Send this delivery again?",
        sentence="It is tried for six more days under the same key. It arrives twice only "
        "if the target received the first and no longer remembers its key.",
        button="Send again",
        field=("_method", "again"),
    ),
    "dropped": Question(
        title="Give up this delivery?",
        sentence="Nothing more is sent. The message that owes it stays as it is.",
        button="Give it up",
        field=("_method", "dropped"),
        danger=True,
    ),
}
_MOST_SHOWN = 100  # of each queue


def add_routes(routes: Routes, site: Site) -> None:
    """Add the questions of the lists on the pages of a queue and of the relay, and their
    answers."""
    pages = OwedPages(site)
    routes.post("/owed/{name}/{key}", pages.resolve, Role.OPERATOR)
    routes.get("/owed/{name}/{key}/confirm/{verb}", pages.question, Role.OPERATOR)


class OwedPages:
    """/owed/QUEUE/KEY: one thing owed; its key has dashes for slashes here."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def question(
        self, req: Request, resp: Response, name: str, key: str, verb: str
    ) -> None:
        page.check_queue(self._site, name)
        question = confirm.chosen(QUESTIONS, verb)
        subject = Subject(
            about=f"{of_address(key)} of {name}",
            action=self._site.url(f"/owed/{name}/{key}"),
            cancel=self._site.url(f"/q/{name}"),
        )
        await confirm.ask(req, resp, self._site, question, subject)

    async def resolve(self, req: Request, resp: Response, name: str, key: str) -> None:
        """Do one of QUESTIONS."""
        form = await forms.read(req)
        word = forms.method(form, QUESTIONS)
        request = {"key": of_address(key), "as": word, "who": who(req)}
        reply = await self._site.owners.ask(name, "resolve_owed", request)
        say(self._site, req, resp, form, reply, f"/q/{name}")


class OwedRow(Owed):
    """Something owed, with what a page needs beside the owner's facts."""

    queue: str
    path: str  # of its actions


async def listed(site: Site, names: Sequence[str]) -> list[OwedRow]:
    """Return what queues owe and could not deliver, those in doubt first; what is only
    on its way is left out."""
    rows = [
        _row(queue, debt)
        for queue, debts in await views.owed(site.owners, names, _MOST_SHOWN)
        for debt in debts
        if debt["why"]
    ]
    return sorted(rows, key=lambda row: (not row["in_doubt"], row["since"]))


def _row(queue: str, debt: Owed) -> OwedRow:
    path = f"/owed/{queue}/{in_address(debt['key'])}"
    target = secrets.host_only(debt["target"])
    return cast(OwedRow, {"queue": queue, "path": path, **debt, "target": target})


def of_address(key: str) -> str:
    """Return the key in an address.

    >>> of_address("0badcafe-17-0")
    '0badcafe/17/0'
    """
    return key.replace("-", "/")


def in_address(key: str) -> str:
    """Return a key as it stands in an address."""
    return key.replace("/", "-")
