"""Flows: the list, and the graph of one with what may be done to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.builtin.flow import deeds
from rq.builtin.flow.deeds import Done
from rq.builtin.flow.record import QUEUE
from rq.flow import drawing, marks
from rq.flow.marks import Mark
from rq.replies.flow import FlowRow, FlowView, NodeView
from rq.web import flows, forms
from rq.web.answers import back_of, go
from rq.web.pages import confirm, page
from rq.web.pages.confirm import Question, Subject
from rq.web.routes import Routes
from rq.web.site import Site

_LISTED = 50
_MOST_ROWS = 200
_DEEDS: Mapping[str, Callable[..., Done]] = {
    "retry": deeds.retry,
    "cancel": deeds.cancel,
}
_SAID = {"retry": "will run again", "cancel": "ended"}
QUESTIONS = {
    "retry": Question(
        title="Retry what failed?",
        sentence="Each message of the flow that has failed runs again; what waits for it "
        "goes on once it has succeeded. What was cancelled stays so.",
        button="Retry",
        field=("_method", "retry"),
    ),
    "rerun": Question(
        title="Send this flow again?",
        sentence="The message that you name and all after it are sent again, as a new flow "
        "that finds the results of those before; without a name, all of it is.",
        button="Send again",
        field=("_method", "rerun"),
        asks=(("from", "From which message on", "its name"),),
    ),
    "cancel": Question(
        title="Cancel this flow?",
        sentence="Messages that wait are removed, and those that run are ended.",
        button="Cancel the flow",
        field=("_method", "cancel"),
        danger=True,
    ),
}


class ListFacts(TypedDict):
    """What the page of all flows shows."""

    time: float
    flows: Sequence[FlowRow]


def add_routes(routes: Routes, site: Site) -> None:
    """Add the pages of flows, and what their buttons send."""
    pages = FlowPages(site)
    for path in ("/flows", "/flows.json"):
        routes.get(path, pages.list, Role.VIEWER, shared=True)
    for path in ("/flows/{flow}", "/flows/{flow}.json"):
        routes.get(path, pages.show, Role.VIEWER, shared=True)
    routes.post("/flows/{flow}", pages.change, Role.PRODUCER, shared=True)
    ask = "/flows/{flow}/confirm/{verb}"
    routes.get(ask, pages.question, Role.PRODUCER, shared=True)


class FlowPages:
    """/flows and /flows/ID with their twins; for programs: `api.flows`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def list(self, req: Request, resp: Response) -> None:
        rows = await flows.listed(self._site, req, _LISTED)
        facts: ListFacts = {"time": time.time(), "flows": rows}
        values = {"facts": facts, "looks": marks.LOOKS}
        await page.show(req, resp, self._site, "flows.html", values)

    async def show(self, req: Request, resp: Response, flow: str) -> None:
        facts = await flows.show(self._site, req, flow)
        nodes = _rows(facts)
        values = {
            "facts": facts,
            "looks": marks.LOOKS,
            "picture": drawing.picture(facts["nodes"]),
            "rows": nodes[:_MOST_ROWS],
            "left_out": len(nodes) - len(nodes[:_MOST_ROWS]),
            "is_open": any(Mark(mark) in marks.OPEN for mark in facts["sums"]),
            "is_begun": facts["is_begun"],
            "is_sender_seen": req.context.principal.sees(QUEUE),
            "sees_all": Mark.HIDDEN not in facts["sums"],
        }
        await page.show(req, resp, self._site, "flow.html", values)

    async def question(
        self, req: Request, resp: Response, flow: str, verb: str
    ) -> None:
        question = confirm.chosen(QUESTIONS, verb)
        facts = await flows.show(self._site, req, flow)
        here = self._site.url(f"/flows/{facts['msg_id']}")
        about = facts["name"] or facts["msg_id"]
        subject = Subject(about=about, action=here, cancel=here)
        await confirm.ask(req, resp, self._site, question, subject)

    async def change(self, req: Request, resp: Response, flow: str) -> None:
        form = await forms.read(req)
        method = forms.method(form, (*_DEEDS, "rerun"))
        if method == "rerun":
            sent = await flows.rerun(self._site, req, flow, form.get("from"))
            msg_id = sent.msg_id
            text = f"sent again as {msg_id}"
            go(self._site, resp, self._site.url(f"/flows/{msg_id}"), "notice", text)
            return
        done = await flows.change(self._site, req, flow, _DEEDS[method])
        kind = "error" if done.failures else "notice"
        text = f"{marks.messages(done.changed)} {_SAID[method]}"
        was = "was cancelled stays" if done.left == 1 else "were cancelled stay"
        stay = [f"{done.left:,} that {was} so"] if done.left else []
        said = "; ".join([text, *stay, *done.failures[:3]])
        go(self._site, resp, back_of(self._site, form, f"/flows/{flow}"), kind, said)


def _rows(facts: FlowView) -> list[NodeView]:
    """Return the messages, those first of which a person wants to know."""
    order = {mark: at for at, mark in enumerate(Mark)}
    return sorted(
        facts["nodes"], key=lambda node: (order[Mark(node["mark"])], node["layer"])
    )
