"""The questions before a person decides about what could not be delivered."""

from __future__ import annotations

from falcon.asgi import Request, Response

from rq.web.deliveries import of_address
from rq.web.pages import confirm, page
from rq.web.pages.confirm import Question, Subject
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


class OwedQuestions:
    """GET /owed/QUEUE/KEY/confirm/VERB."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(
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
