"""Asking before acting: a page of its own, which a script may show as a dialog."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import falcon
from falcon.asgi import Request, Response

from rq.web.pages import page
from rq.web.pages.message import facts_of
from rq.web.pages.queue import check_queue

if TYPE_CHECKING:
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


OF_QUEUE = {
    "pause": Question(
        title="Pause this queue?",
        sentence="Running messages go on; no others start until it is resumed. "
        "Messages are still accepted.",
        button="Pause",
        path="/adminoper",
        field=("pause", "1"),
        asks=(("why", "Why", ""), ("until", "Until, in UTC", "18:00, +2h")),
    ),
    "down": Question(
        title="Take this queue down?",
        sentence="No message starts and none is accepted until it is up again. "
        "Senders get an error.",
        button="Take down",
        path="/adminoper",
        field=("down", "1"),
        danger=True,
    ),
    "restart": Question(
        title="Restart this queue's process?",
        sentence="Running messages are stopped and run again afterwards; that does not "
        "count as a retry.",
        button="Restart",
        path="/restart",
        danger=True,
    ),
    "ack_errs": Question(
        title="Acknowledge all errors of this queue?",
        sentence="The failed messages are kept, and no longer counted as needing "
        "attention. One that fails from now on is not among them.",
        button="Acknowledge all",
        path="/ack_errs",
    ),
    "delete": Question(
        title="Delete this queue?",
        sentence="It is stopped and moved to queue.trash/ with all its messages; only "
        "`rq trash empty` removes it for good.",
        button="Delete the queue",
        danger=True,
        home=True,
    ),
}
OF_MESSAGE = {
    "commit": Question(
        title="Commit this message?",
        sentence="It is accepted as it is now and runs when it is due.",
        button="Commit",
        field=("_method", "commit"),
    ),
    "run_now": Question(
        title="Run this message now?",
        sentence="It starts before all others, and does not wait until it is due.",
        button="Run now",
        field=("_method", "run_now"),
    ),
    "hold": Question(
        title="Hold this message?",
        sentence="It waits, however long it is due, until somebody releases it.",
        button="Hold",
        field=("_method", "hold"),
        asks=(("why", "Why", ""),),
    ),
    "release": Question(
        title="Release this message?",
        sentence="It starts when it is due and its turn has come.",
        button="Release",
        field=("_method", "release"),
    ),
    "cancel": Question(
        title="Cancel this message?",
        sentence="Its script is told to stop, and killed if it does not. The message "
        "goes to err.",
        button="Cancel the message",
        field=("_method", "cancel"),
        danger=True,
    ),
    "cancel_batch": Question(
        title="Cancel the whole batch?",
        sentence="This message runs in a batch: one process for all of it. The process is "
        "told to stop, and killed if it does not. All messages of the batch that have not "
        "ended go to err.",
        button="Cancel the batch",
        field=("_method", "cancel_batch"),
        danger=True,
    ),
    "retry": Question(
        title="Run this message again?",
        sentence="It keeps its id, and its retries count from 0.",
        button="Retry",
        field=("_method", "retry"),
    ),
    "ack": Question(
        title="Acknowledge this error?",
        sentence="The message is kept, and no longer counted as needing attention.",
        button="Acknowledge",
        field=("_method", "ack"),
    ),
    "unack": Question(
        title="Take the acknowledgement back?",
        sentence="The message counts again as needing attention.",
        button="Take it back",
        field=("_method", "unack"),
    ),
    "move": Question(
        title="Move this message to another queue?",
        sentence="It goes on there, with its parameters and attachments. Here it counts "
        "as relayed, and keeps its log.",
        button="Move",
        field=("_method", "move"),
        asks=(("to", "Queue", "text"),),
    ),
    "clone": Question(
        title="Clone this message?",
        sentence="A new message with the same parameters and attachments is sent to "
        "this queue.",
        button="Clone",
        path="/clone",
    ),
    "delete": Question(
        title="Delete this message?",
        sentence="Its folder with log and attachments is removed. This cannot be undone.",
        button="Delete the message",
        field=("_method", "delete"),
        danger=True,
        home=True,
    ),
}


class Confirm:
    """GET .../confirm/VERB."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_queue(
        self, req: Request, resp: Response, name: str, verb: str
    ) -> None:
        check_queue(self._site, name)
        question = chosen(OF_QUEUE, verb)
        base = self._site.url(f"/q/{name}")
        subject = Subject(about=name, action=base + question.path, cancel=base)
        if verb == "ack_errs":
            subject = replace(subject, fields=(("before", repr(time.time())),))
        if verb == "delete":
            home, action = self._site.url("/"), self._site.url("/delete_queue")
            which = (("queue_name", name),)
            subject = replace(subject, action=action, back=home, fields=which)
        await ask(req, resp, self._site, question, subject)

    async def of_message(
        self, req: Request, resp: Response, name: str, msg_id: str, verb: str
    ) -> None:
        question = chosen(OF_MESSAGE, verb)
        await facts_of(self._site, req, name, msg_id)
        queue = self._site.url(f"/q/{name}")
        base = f"{queue}/{msg_id}"
        subject = Subject(
            about=f"{name}/{msg_id}",
            action=base + question.path,
            cancel=base,
            back=queue if question.home else base,
        )
        await ask(req, resp, self._site, question, subject)


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
