"""What an admin and operators do to queues: new, pause, down, restart, acknowledge, delete.

Each question stands beside what a yes sends; words and sentences: `web.deeds`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC

import falcon
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.errors import BadInput, NoSuchQueue, NotPermitted, RQError, WrongState
from rq.kinds import Kind
from rq.web import forms
from rq.web.answers import failure_in, say, wants_json
from rq.web.deeds import OF_QUEUE
from rq.web.forms import Form
from rq.web.messages import who
from rq.web.pages import confirm, page
from rq.web.pages.confirm import Question, Subject
from rq.web.pages.forms import must_be_page
from rq.web.routes import Routes
from rq.web.site import Site
from rq.web.statuses import status_of
from rq.words import moments
from rq.words.nesting import Json

# What a form for a queue holds at first.
_NOTHING: Mapping[str, object] = {
    "name": "",
    "script": "",
    "num_workers": "",
    "exec_prefix": "",
    "pull": "",
    "timeout": "",
    "heartbeat": "",
    "memory": "",
    "log_bytes": "",
    "coalesce_params": [],
    "blocking_params": [],
}
_NEW = {**_NOTHING, "num_workers": "1", "exec_prefix": "bash -lc "}
_LIMITS = ("timeout", "heartbeat", "memory", "log_bytes")
_NEW_QUEUE = ("name", "script", "num_workers", "exec_prefix", *_LIMITS)
_PARAM_LISTS = ("coalesce_params", "blocking_params")
QUESTIONS = {
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


def add_routes(routes: Routes, site: Site) -> None:
    """Add the form of a new queue, the questions about queues, and what these send."""
    pages = QueueAdmin(site)
    routes.get("/new_queue", pages.form, Role.ADMIN)
    routes.post("/new_queue", pages.create, Role.ADMIN)
    routes.get("/q/{name}/confirm/{verb}", pages.question, Role.OPERATOR)
    routes.post("/q/{name}/adminoper", pages.administer, Role.OPERATOR)
    routes.post("/q/{name}/restart", pages.restart, Role.OPERATOR)
    routes.post("/q/{name}/ack_errs", pages.acknowledge, Role.OPERATOR)
    routes.post("/delete_queue", pages.delete, Role.ADMIN)


class QueueAdmin:
    """/new_queue, /delete_queue, and of a queue its questions and their answers."""

    def __init__(self, site: Site) -> None:
        self._site = site

    # ---- a new one

    async def form(self, req: Request, resp: Response) -> None:
        if not self._site.config.allow_new_queue:
            raise NotPermitted(
                "Queues may not be made here: allow_new_queue in "
                "config/config.json was not true when RQ started. Link a directory with a "
                "program `run` into scandir/ instead."
            )
        await self._show(req, resp, _NEW)

    async def _show(
        self, req: Request, resp: Response, given: Mapping[str, object], why: str = ""
    ) -> None:
        """Show the form of a new queue with what is given; `why` it was refused so."""
        values = {"facts": {}, "given": given, "why": why}
        await page.show(req, resp, self._site, "new_queue.html", values)

    async def _refuse(
        self, req: Request, resp: Response, form: Form, error: RQError
    ) -> None:
        """Answer a form that was refused with itself: it need not be written again."""
        given = form.nested("queue")
        must_be_page(req, error, given)
        resp.status = falcon.code_to_http_status(status_of(error))
        await self._show(req, resp, {**_NOTHING, **given}, str(error))

    async def create(self, req: Request, resp: Response) -> None:
        if not self._site.config.allow_new_queue:
            raise NotPermitted(
                "Queues may not be made here: allow_new_queue is not true in "
                "config/config.json."
            )
        form = await forms.read(req)
        wanted = form.nested("queue")
        if not wanted:
            raise BadInput("say queue[name] and queue[script]")
        reply = await self._site.owners.supervisor("create_queue", _config_of(wanted))
        error = failure_in(reply)
        if error is not None and not wants_json(form):
            error = _why_not_made(error, wanted)
            await self._refuse(req, resp, form, error)
            return
        say(
            self._site,
            req,
            resp,
            form,
            reply,
            f"/q/{wanted['name']}",
            "the queue is made",
        )

    # ---- one that is there

    async def question(
        self, req: Request, resp: Response, name: str, verb: str
    ) -> None:
        page.check_queue(self._site, name)
        question = confirm.chosen(QUESTIONS, verb)
        base = self._site.url(f"/q/{name}")
        subject = Subject(about=name, action=base + question.path, cancel=base)
        if verb == "ack_errs":
            subject = replace(subject, fields=(("before", repr(time.time())),))
        if verb == "delete":
            home, action = self._site.url("/"), self._site.url("/delete_queue")
            which = (("queue_name", name),)
            subject = replace(subject, action=action, back=home, fields=which)
        await confirm.ask(req, resp, self._site, question, subject)

    async def delete(self, req: Request, resp: Response) -> None:
        form = await forms.read(req)
        name = form.get("queue_name")
        _must_exist(self._site, name)
        reply = await self._site.owners.supervisor("delete_queue", name)
        say(self._site, req, resp, form, reply, "/")

    async def administer(self, req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        given = [verb for verb in OF_QUEUE if form.has(verb)]
        if not given or len(given) == len(OF_QUEUE):
            raise BadInput(f"say one of {', '.join(f'{verb}=1' for verb in OF_QUEUE)}")
        _must_exist(self._site, name)
        about = _pause(req, name, form) if given[0] == "pause" else name
        reply = await self._site.owners.supervisor(f"{given[0]}_queue", about)
        text = OF_QUEUE[given[0]].done.format(name=name)
        say(self._site, req, resp, form, reply, f"/q/{name}", text)

    async def restart(self, req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        _must_exist(self._site, name)
        reply = await self._site.owners.supervisor("restart_queue", name)
        say(self._site, req, resp, form, reply, f"/q/{name}", f"{name} is restarting")

    async def acknowledge(self, req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        request = {"before": _seconds(form.get("before"))} if form.has("before") else {}
        reply = await self._site.owners.ask(name, "ack_errs", request)
        if failure_in(reply):
            say(self._site, req, resp, form, reply, f"/q/{name}")
            return
        text = "1 error is" if reply[1] == 1 else f"{reply[1]} errors are"
        text = f"{text} acknowledged"
        if reply[2:]:
            text = f"{text}; {reply[2]} failed meanwhile: look at these first"
        say(self._site, req, resp, form, reply, f"/q/{name}", text)


def _must_exist(site: Site, name: str) -> None:
    if not names.is_queue_name(name):
        raise NoSuchQueue(f"there is no queue {name!r:.80}")
    if not site.root.queue(name).config.is_file():
        raise NoSuchQueue(f"there is no queue {name}")


def _seconds(text: str) -> Json:
    """Return a number; a text that is none as it is, of which the owner says so."""
    try:
        seconds = float(text)
    except ValueError:
        return text
    return seconds if math.isfinite(seconds) else text


def _pause(req: Request, name: str, form: Form) -> dict[str, object]:
    """Return what a form says of a pause."""
    until = form.get("until").strip()
    return {
        "queue": name,
        "why": form.get("why").strip(),
        "until": moments.until(until, time.time(), UTC) if until else None,
        "who": who(req),
    }


def _why_not_made(error: RQError, wanted: Mapping[str, object]) -> RQError:
    """Return a refusal of the supervisor, which keeps the ancestor's words, as a sentence."""
    if not (wanted.get("script") or wanted.get("pull")):
        return BadInput(
            "Who works on its messages? Name a script that runs here, or let workers "
            "elsewhere take them."
        )
    if error.kind is not Kind.WRONG_STATE:
        return error
    name = wanted.get("name")
    return WrongState(f"There is already a queue {name}; choose another name.")


def _config_of(wanted: Mapping[str, object]) -> dict[str, object]:
    """Return the queue config that a form asks for; blank fields are not set, but a blank
    prefix is one: the script is started directly. `pull` is ticked or not."""
    config = {key: wanted[key] for key in _NEW_QUEUE if wanted.get(key)}
    if wanted.get("exec_prefix") == "":
        config["exec_prefix"] = ""
    if wanted.get("pull"):
        config["pull"] = {}
    for key in _PARAM_LISTS:
        chosen = wanted.get(key)
        if isinstance(chosen, list):
            config[key] = [number for number in chosen if number]
    return config
