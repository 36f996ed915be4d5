"""A queue of the broker and a job of it, and what a person does to them."""

from __future__ import annotations

import asyncio
from typing import TypedDict

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import BadInput, NoSuchMessage, NoSuchQueue
from rq.layout import Root
from rq.rpc.broker import addresses, answers, questions
from rq.rpc.broker.rows import Job, JobRow, Minutes, QueueRow
from rq.web import forms
from rq.web.answers import reply_of, say
from rq.web.pages import broker, confirm, page
from rq.web.pages.broker import State
from rq.web.pages.confirm import Question, Subject
from rq.web.routes import Routes
from rq.web.site import Site

_PEEKED = 50  # jobs of each dialect
_DIALECTS = ("disque", "redisrq", "bananaq")

OF_QUEUE = {
    "pause": Question(
        title="Pause this queue?",
        sentence="Jobs are neither taken nor handed out until it is resumed. Programs that "
        "send one get an error; those that wait for one wait on.",
        button="Pause",
        field=("_method", "pause"),
    ),
    "pause_in": Question(
        title="Take no more jobs?",
        sentence="Programs that send a job get an error until it is resumed. What is there "
        "is still handed out.",
        button="Pause its input",
        field=("_method", "pause_in"),
    ),
    "pause_out": Question(
        title="Hand out no more jobs?",
        sentence="Jobs are taken, and wait until it is resumed.",
        button="Pause its output",
        field=("_method", "pause_out"),
    ),
}
OF_JOB = {
    "enqueue": Question(
        title="Let this job come into its queue now?",
        sentence="A program that works on it still may: then it is done twice.",
        button="Enqueue",
        field=("_method", "enqueue"),
    ),
    "dequeue": Question(
        title="Take this job out of its queue?",
        sentence="Nobody is handed it until its next delivery is due.",
        button="Dequeue",
        field=("_method", "dequeue"),
    ),
    "ack": Question(
        title="Acknowledge this job?",
        sentence="It counts as done, and is handed out no more. Its body is removed.",
        button="Acknowledge",
        field=("_method", "ack"),
        home=True,
    ),
    "delete": Question(
        title="Delete this job?",
        sentence="It is removed, whoever works on it. This cannot be undone.",
        button="Delete the job",
        field=("_method", "delete"),
        danger=True,
        home=True,
    ),
}
_PAUSES = {"pause": "all", "pause_in": "in", "pause_out": "out", "resume": "none"}
_PAUSED = {
    "all": "is paused",
    "in": "takes no more jobs",
    "out": "hands out no more jobs",
    "none": "is resumed",
}
_DONE = {
    "ack": "is acknowledged",
    "delete": "is deleted",
    "enqueue": "is in its queue",
    "dequeue": "is out of its queue",
}
_NOT_DONE = {
    "ack": "the broker has no such job any more",
    "delete": "the broker has no such job any more",
    "enqueue": "it was in its queue already, was handed out at most once, or is gone",
    "dequeue": "it was not in its queue, or would not come again: its RETRY is 0",
}


class QueueFacts(State):
    """What the page of a queue shows."""

    name: str
    address: str
    rows: list[QueueRow]  # one for each dialect that has a queue of this name
    minutes: list[Minutes]  # of each row
    jobs: dict[str, list[JobRow]]  # by dialect, those that come next


class JobFacts(State):
    """What the page of a job shows."""

    id: str
    address: str
    job: Job | None


class Story(TypedDict):
    """What is so of a job, why, and what comes."""

    what: str
    todo: str
    state: str  # the state of a message that looks like it


def add_routes(routes: Routes, site: Site) -> None:
    """Add the pages of a queue and of a job, their questions, and what these send.

    Names of the broker's queues are none of RQ's: who may ask of some queues of RQ may not
    ask of these.
    """
    pages = BrokerQueuePages(site)
    for end in ("", ".json"):
        routes.get(f"/broker/q/{{queue}}{end}", pages.of_queue, Role.VIEWER)
        routes.get(f"/broker/job/{{job}}{end}", pages.of_job, Role.VIEWER)
    routes.get("/broker/q/{queue}/confirm/{verb}", pages.ask_of_queue, Role.OPERATOR)
    routes.get("/broker/job/{job}/confirm/{verb}", pages.ask_of_job, Role.OPERATOR)
    routes.post("/broker/q/{queue}", pages.change_queue, Role.OPERATOR)
    routes.post("/broker/job/{job}", pages.change_job, Role.OPERATOR)


class BrokerQueuePages:
    """/broker/q/QUEUE, /broker/job/JOB, their twins and questions."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_queue(self, req: Request, resp: Response, queue: str) -> None:
        name = queue_name(queue)
        facts = await asyncio.to_thread(_queue_facts, self._site.root, name)
        await page.show(req, resp, self._site, "broker_queue.html", {"facts": facts})

    async def of_job(self, req: Request, resp: Response, job: str) -> None:
        facts = await asyncio.to_thread(_job_facts, self._site.root, job_id(job))
        values = {
            "facts": facts,
            "story": story(facts["job"]),
            "copy_state": answers.copy_state,
        }
        await page.show(req, resp, self._site, "broker_job.html", values)

    async def ask_of_queue(
        self, req: Request, resp: Response, queue: str, verb: str
    ) -> None:
        name = addresses.readable(queue_name(queue))
        base = self._site.url(f"/broker/q/{queue}")
        subject = Subject(about=f"{name:.200}", action=base, cancel=base)
        question = confirm.chosen(OF_QUEUE, verb)
        await confirm.ask(req, resp, self._site, question, subject)

    async def ask_of_job(
        self, req: Request, resp: Response, job: str, verb: str
    ) -> None:
        question = confirm.chosen(OF_JOB, verb)
        there = await asyncio.to_thread(questions.job, self._site.root, job_id(job))
        base = self._site.url(f"/broker/job/{job}")
        queue = self._site.url(f"/broker/q/{there.queue_address}")
        subject = Subject(
            about=there.id,
            action=base,
            cancel=base,
            back=queue if question.home else base,
        )
        await confirm.ask(req, resp, self._site, question, subject)

    async def change_queue(self, req: Request, resp: Response, queue: str) -> None:
        form = await forms.read(req)
        how = _PAUSES[forms.method(form, _PAUSES)]
        name, root = queue_name(queue), self._site.root
        reply = await reply_of(asyncio.to_thread(questions.pause, root, name, how))
        text = f"{addresses.readable(name):.80} {_PAUSED[how]}"
        say(self._site, req, resp, form, reply, f"/broker/q/{queue}", text)

    async def change_job(self, req: Request, resp: Response, job: str) -> None:
        form = await forms.read(req)
        name, root = job_id(job), self._site.root
        deed = forms.method(form, questions.DEEDS)
        reply = await reply_of(asyncio.to_thread(questions.change, root, deed, [name]))
        text = (
            f"{name} {_DONE[deed]}" if reply[1] else f"nothing done: {_NOT_DONE[deed]}"
        )
        say(self._site, req, resp, form, reply, f"/broker/job/{job}", text)


def queue_name(address: str) -> bytes:
    """Return the name of a queue by its address; NoSuchQueue when there is none."""
    try:
        return addresses.name_at(address)
    except BadInput as error:
        raise NoSuchQueue(str(error)) from None


def job_id(address: str) -> str:
    """Return the id of a job by its address; NoSuchMessage when there is none."""
    try:
        return addresses.name_at(address).decode("ascii")
    except (BadInput, UnicodeDecodeError):
        raise NoSuchMessage(f"{address:.80} is not the id of a job") from None


def _queue_facts(root: Root, name: bytes) -> QueueFacts:
    peeks = [("BROKER", "PEEK", dialect, name, str(_PEEKED)) for dialect in _DIALECTS]
    state, replies = broker.ask(root, [("BROKER", "QUEUE", name), *peeks])
    rows = answers.queues_in(replies[0]) if replies else []
    jobs = {
        dialect: answers.jobs_in(answer)
        for dialect, answer in zip(_DIALECTS, replies[1:], strict=False)
    }
    return {
        **state,
        "name": addresses.readable(name),
        "address": addresses.address_of(name),
        "rows": rows,
        "minutes": answers.minutes_in(replies[0]) if replies else [],
        "jobs": jobs,
    }


def _job_facts(root: Root, name: str) -> JobFacts:
    state, replies = broker.ask(root, [("BROKER", "JOB", name)])
    job = answers.job_in(replies[0]) if replies and replies[0] is not None else None
    address = addresses.address_of(name.encode())
    return {**state, "id": name, "address": address, "job": job}


def story(job: Job | None) -> Story:
    """Return what is so of a job."""
    if job is None:
        return {
            "what": "The broker has no such job.",
            "todo": "It is acknowledged or deleted, its time is over, or it never was.",
            "state": "done",
        }
    if job.state == "acked":
        todo = "It goes when each node that may have it knows that it is done."
        return {"what": "It is acknowledged.", "todo": todo, "state": "done"}
    if job.state == "wait-repl":
        what = f"Its producer waits until {job.wanted} nodes have it."
        return {"what": what, "todo": "Then it begins.", "state": "prep"}
    if job.state == "queued":
        handed = "Whoever asks next is handed it, when those before it are."
        paused = "Nobody is handed it while its queue is paused."
        todo = paused if job.paused in ("out", "all") else handed
        return {"what": "It waits in its queue.", "todo": todo, "state": "que"}
    if not job.was_queued:
        what = f"It is delayed: it comes into its queue in {job.comes_in} s."
        return {"what": what, "todo": "Enqueue lets it come now.", "state": "prep"}
    if job.comes_in < 0:
        what = "It was handed out, at most once: it does not come again."
        todo = "Its program acknowledges it, or its time ends."
        return {"what": what, "todo": todo, "state": "run"}
    what = "It was handed out." if job.was_given else "It was taken out of its queue."
    todo = "It comes again in {} s, unless it is acknowledged before."
    return {"what": what, "todo": todo.format(job.comes_in), "state": "run"}
