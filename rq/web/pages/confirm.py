"""Asking before acting: a page of its own, which a script may show as a dialog."""

from __future__ import annotations

from dataclasses import dataclass

import falcon
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.message.action import Action, Door
from rq.message.actions import at
from rq.web.pages import page
from rq.web.pages.message import facts_of
from rq.web.routes import Routes
from rq.web.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, what the button says, and what it sends where."""

    title: str
    sentence: str
    button: str
    path: str = ""  # after the address of the queue or the message
    field: tuple[str, str] | None = None
    danger: bool = False
    # Lines that a person may fill in: name, label, and an example.
    asks: tuple[tuple[str, str, str], ...] = ()
    home: bool = False  # comes back to the queue: the message will be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a question is about, and where its answers go: addresses."""

    about: str
    action: str  # a yes is posted there
    cancel: str  # a no leads there
    back: str = ""  # a yes comes back there; to where a no leads, if nothing is said
    fields: tuple[tuple[str, str], ...] = ()  # what a yes sends beside the question's


def _question(action: Action) -> Question | None:
    """Return what is asked before an action of the table; None: nothing is."""
    if action.confirm is None:
        return None
    by_method = Door.REST in action.doors
    return Question(
        title=action.confirm.title,
        sentence=action.explains,
        button=action.confirm.button or action.label,
        path="" if by_method else f"/{action.word}",
        field=("_method", action.word) if by_method else None,
        danger=action.danger,
        asks=tuple((takes.name, takes.label, takes.example) for takes in action.takes),
        home=action.gone,
    )


OF_MESSAGE = {
    word: question
    for word, action in at(Door.PAGE).items()
    if (question := _question(action)) is not None
}


def add_routes(routes: Routes, site: Site) -> None:
    """Add the questions before something is done to a message."""

    async def of_message(
        req: Request, resp: Response, name: str, msg_id: str, verb: str
    ) -> None:
        question = chosen(OF_MESSAGE, verb)
        await facts_of(site, req, name, msg_id)
        queue = site.url(f"/q/{name}")
        base = f"{queue}/{msg_id}"
        subject = Subject(
            about=f"{name}/{msg_id}",
            action=base + question.path,
            cancel=base,
            back=queue if question.home else base,
        )
        await ask(req, resp, site, question, subject)

    routes.get("/q/{name}/{msg_id}/confirm/{verb}", of_message, Role.OPERATOR)


async def ask(
    req: Request, resp: Response, site: Site, question: Question, subject: Subject
) -> None:
    """Show a question."""
    answer = [question.field] if question.field else []
    fields = [*answer, *subject.fields, ("back", subject.back or subject.cancel)]
    facts = {
        "title": question.title,
        "sentence": question.sentence,
        "post": subject.action,
        "fields": dict(fields),
    }
    values = {
        "facts": facts,
        "question": question,
        "subject": subject,
        "fields": fields,
    }
    await page.show(req, resp, site, "confirm.html", values)


def chosen(questions: dict[str, Question], verb: str) -> Question:
    """Return the question of an action; 404 when there is none."""
    question = questions.get(verb)
    if question is None:
        raise falcon.HTTPNotFound(description=f"There is no action {verb!r:.40}.")
    return question
