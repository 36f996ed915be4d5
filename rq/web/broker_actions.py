"""What a person does with queues and jobs of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import falcon
from falcon.asgi import Request, Response

from rq import wire
from rq.access.roles import Role
from rq.broker_client import addresses, questions
from rq.errors import RQError
from rq.lines.owners import Reply
from rq.web import forms
from rq.web.answers import say
from rq.web.pages.broker_queue import job_id, queue_name
from rq.web.routes import Routes
from rq.web.site import Site

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


def add_routes(routes: Routes, site: Site) -> None:
    """Add the actions of the pages of the broker."""
    actions = BrokerActions(site)
    routes.post("/broker/q/{queue}", actions.change_queue, Role.OPERATOR)
    routes.post("/broker/job/{job}", actions.change_job, Role.OPERATOR)


class BrokerActions:
    """Pausing queues, and deciding about jobs."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def change_queue(self, req: Request, resp: Response, queue: str) -> None:
        form = await forms.read(req)
        how = _PAUSES.get(form.get("_method"))
        if how is None:
            raise _no_method(_PAUSES)
        name = queue_name(queue)
        reply = await _reply(lambda: questions.pause(self._site.root, name, how))
        text = f"{addresses.readable(name):.80} {_PAUSED[how]}"
        say(self._site, req, resp, form, reply, f"/broker/q/{queue}", text)

    async def change_job(self, req: Request, resp: Response, job: str) -> None:
        form = await forms.read(req)
        deed, name = form.get("_method"), job_id(job)
        if deed not in questions.DEEDS:
            raise _no_method(questions.DEEDS)
        reply = await _reply(lambda: questions.change(self._site.root, deed, [name]))
        text = (
            f"{name} {_DONE[deed]}" if reply[1] else f"nothing done: {_NOT_DONE[deed]}"
        )
        say(self._site, req, resp, form, reply, f"/broker/job/{job}", text)


def _no_method(methods: dict[str, str]) -> falcon.HTTPBadRequest:
    *names, last = methods
    return falcon.HTTPBadRequest(
        description=f"_method is none of {', '.join(names)} and {last}"
    )


async def _reply(change: Callable[[], str | int]) -> Reply:
    """Return what the broker says, as the reply that it is."""
    try:
        return ["ok", await asyncio.to_thread(change)]
    except RQError as error:
        return wire.failure(error, with_kind=True)
