"""What failed, of all queues, by what the failures have in common; and what is done to all
that failed alike.

The index finds the groups; it is never trusted with a change. Each owner counts, and
changes, the messages of its queue by the filter `group`, that is by what each message
itself says.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import TypedDict, cast

from falcon.asgi import Request, Response

from rq.access.roles import Principal, Role
from rq.config import seen
from rq.errors import BadInput, NoSuchMessage, RQError
from rq.index import doors
from rq.index.doors import FailuresView, FailureView
from rq.message.action import Action, Door
from rq.message.actions import Word, at
from rq.replies import BulkChoice
from rq.web import forms, indexed
from rq.web.answers import back_of, go
from rq.web.forms import Form
from rq.web.messages import check_move, who
from rq.web.pages import log, page
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.nesting import Json

_WORDS = (Word.RETRY, Word.ACK, Word.MOVE, Word.DELETE)
ANSWERS: Mapping[str, Action] = {word: at(Door.BULK)[word] for word in _WORDS}
LOOKED = "looked"  # `_method` of who has looked at all of them
_LINES = 12  # of the log of a group's newest message
_LONGEST = 500  # characters of what an action is done with


class Facts(TypedDict):
    """What the page shows."""

    time: float
    queue: str
    seen: float  # when the reader looked last; 0: never
    answer: FailuresView | None  # None: there is none
    why: str


class Counted(TypedDict):
    """How many messages an owner would change; `why`: none, for it does not say."""

    queue: str
    messages: int
    why: str


class GroupFacts(TypedDict):
    """What the page of one group shows."""

    time: float
    failure: FailureView
    log: str
    action: str
    to: str
    before: float
    counted: list[Counted]


def add_routes(routes: Routes, site: Site) -> None:
    """Add the pages of failures, and what their buttons send."""
    pages = FailuresPage(site)
    for path in ("/failures", "/failures.json"):
        routes.get(path, pages.on_get, Role.VIEWER, shared=True)
    routes.post("/failures", pages.looked, Role.VIEWER, shared=True)
    group = GroupPage(site)
    routes.get("/failures/{group}", group.on_get, Role.VIEWER, shared=True)
    routes.post("/failures/{group}", group.begin, Role.OPERATOR, shared=True)


class FailuresPage:
    """/failures and its twin; for programs: `api.index`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response) -> None:
        fields = page.filled_in(req, ("queue",))
        try:
            answer, why = await groups(self._site, req, fields["queue"]), ""
        except RQError as error:
            answer, why = None, str(error)
        reader: Principal = req.context.principal
        facts: Facts = {
            "time": time.time(),
            "queue": fields["queue"],
            "seen": seen.failures(self._site.root, reader.name),
            "answer": answer,
            "why": why,
        }
        values = {
            "facts": facts,
            "address": lambda **changes: page.address({**fields, **changes}),
        }
        await page.show(req, resp, self._site, "failures.html", values)

    async def looked(self, req: Request, resp: Response) -> None:
        """Keep that the reader has looked at all of them."""
        form = await forms.read(req)
        forms.method(form, (LOOKED,))
        reader: Principal = req.context.principal
        root, now = self._site.root, time.time()
        await self._site.pools.file(seen.mark_failures, root, reader.name, now)
        text = "what fails from now on is new"
        go(self._site, resp, back_of(self._site, form, "/failures"), "notice", text)


async def groups(site: Site, req: Request, queue: str = "") -> FailuresView:
    """Return what failed alike, as the reader may see it."""
    failures, fresh = await indexed.answer(
        site, req, lambda index, visible: index.failures(queue or None, visible)
    )
    view = doors.failures_view(failures, fresh, time.time())
    return {**view, "failures": indexed.for_reader(req, view["failures"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What is to be done to the messages of a group."""

    group: str
    action: Action
    to: str
    before: float  # they had failed by then

    def request(self, now: float) -> dict[str, Json]:
        """Return what an owner is asked for."""
        wanted: dict[str, Json] = {
            "state": "err",
            "group": self.group,
            "before": self.before,
        }
        request: dict[str, Json] = {"action": self.action.word, "filter": wanted}
        for takes in self.action.takes:
            request["to"] = takes.said(self.to, now, UTC)
        return request


class GroupPage:
    """/failures/GROUP: what failed alike, and what is done to all of it."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response, group: str) -> None:
        failure = await self._failure(req, group)
        now, action = time.time(), req.get_param("action", default="")
        to = (req.get_param("to") or req.get_param(f"to_{action}") or "")[:_LONGEST]
        tail = await self._tail(failure)
        counted: list[Counted] = []
        principal: Principal = req.context.principal
        if action in ANSWERS and principal.may(Role.OPERATOR):
            meant = Meant(group=group, action=ANSWERS[action], to=to, before=now)
            counted = await self._counted(failure, meant)
        facts: GroupFacts = {
            "time": now,
            "failure": failure,
            "log": tail,
            "action": action if action in ANSWERS else "",
            "to": to,
            "before": now,
            "counted": counted,
        }
        values = {"facts": facts, "failure": failure, "actions": ANSWERS}
        await page.show(req, resp, self._site, "failure.html", values)

    async def _failure(self, req: Request, group: str) -> FailureView:
        view = await groups(self._site, req)
        for failure in view["failures"]:
            if failure["group"] == group:
                return failure
        raise NoSuchMessage(
            "No message that you may see fails like this now: all are acknowledged, moved, "
            "removed, or run again."
        )

    async def _tail(self, failure: FailureView) -> str:
        """Return the last lines that the script of the newest message has written."""
        read = log.last_lines
        place = self._site.root.queue(failure["queue"])
        return await self._site.pools.file(read, place, failure["msg_id"], _LINES)

    async def _counted(self, failure: FailureView, meant: Meant) -> list[Counted]:
        """Let each owner count what it would change."""
        queues = list(failure["queues"])
        try:
            request = {**meant.request(time.time()), "dry_run": True}
        except RQError as error:
            return [Counted(queue="", messages=0, why=str(error))]
        ask = self._site.owners.demand
        replies = await asyncio.gather(
            *(ask(queue, "bulk", request) for queue in queues), return_exceptions=True
        )
        return [_count(*pair) for pair in zip(queues, replies, strict=True)]

    async def begin(self, req: Request, resp: Response, group: str) -> None:
        """Do one thing to all messages of a group that were counted."""
        form = await forms.read(req)
        meant = _meant(form, group)
        failure = await self._failure(req, group)
        request = {**meant.request(time.time()), "who": who(req)}
        if meant.action.word == Word.MOVE:
            for queue in failure["queues"]:  # before any of them has begun
                check_move(req, queue, meant.to)
        texts = [await self._begun(queue, request) for queue in failure["queues"]]
        failed = any(is_bad for is_bad, _ in texts)
        text = "; ".join(text for _, text in texts)
        kind = "error" if failed else "notice"
        go(self._site, resp, back_of(self._site, form, "/failures"), kind, text)

    async def _begun(self, queue: str, request: dict[str, Json]) -> tuple[bool, str]:
        """Ask an owner; return whether it refuses, and what to say of it."""
        try:
            view = await self._site.owners.demand(queue, "bulk", request)
        except RQError as error:
            return True, f"{queue}: {error}"
        number = cast(dict[str, int], view)["messages"]
        return False, f"{queue}: begun with {number:,} message{'s'[: number != 1]}"


def _count(queue: str, reply: Json | BaseException) -> Counted:
    if isinstance(reply, RQError):
        return Counted(queue=queue, messages=0, why=str(reply))
    if isinstance(reply, BaseException):
        raise reply
    return Counted(queue=queue, messages=cast(BulkChoice, reply)["messages"], why="")


def _meant(form: Form, group: str) -> Meant:
    action = ANSWERS.get(form.get("action"))
    if action is None:
        words = ", ".join(ANSWERS)
        raise BadInput(f"action is {form.get('action')!r:.40}, not one of {words}")
    try:
        before = float(form.get("before"))
    except ValueError:
        before = math.nan
    if not math.isfinite(before):
        raise BadInput("before is when the messages were counted, in epoch seconds")
    to = form.get("to")[:_LONGEST].strip()
    return Meant(group=group, action=action, to=to, before=before)
