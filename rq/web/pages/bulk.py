"""Many messages of a queue: which match, what is done to all of them, how far that is."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import TypedDict, cast
from urllib.parse import urlencode

from falcon.asgi import Request, Response

from rq.access.roles import Principal, Role
from rq.errors import BadInput, RQError
from rq.message.action import Door
from rq.message.actions import Word, at, offered_for_many
from rq.message.causes import Cause
from rq.message.table import PARAMS
from rq.replies import BulkChoice, BulkView
from rq.web import forms
from rq.web.answers import for_asker, say
from rq.web.messages import check_move, who
from rq.web.pages import page
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words import moments
from rq.words.nesting import Json
from rq.words.states import State

_LONGEST = 4096  # characters of a field
_MOST_IDS = 64 * 1024  # of all ids that were chosen in a list
_ENDED = 20  # of those that have ended
_ACTIONS = at(Door.BULK)
_OF_MESSAGE = ("find", "key", "by", *PARAMS)
# What a filter may say of messages of a state; the others have nothing that it looks at.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "que": ("older", "cause", *_OF_MESSAGE),
    "run": ("older", "text", *_OF_MESSAGE),
    "err": ("group", "cause", "older", "text", *_OF_MESSAGE),
    "dismissed": ("group", "cause", "older", "text", *_OF_MESSAGE),
    "done": ("older", "text", *_OF_MESSAGE),
    "relayed": ("older", "cause", "text", *_OF_MESSAGE),
    "prep": ("older", *_OF_MESSAGE),
}
FILTER = FIELDS["err"]
STATES = ("que", "run", "err", "dismissed", "done", "relayed", "prep")


class Facts(TypedDict):
    """What the page shows."""

    time: float
    queue: str
    form: dict[str, str]  # the fields of the form as they were filled in
    offer: BulkChoice | None  # causes and groups that there are; None: not asked
    choice: BulkChoice | None  # what matches; None: nothing was asked
    why: str  # what is wrong with what was asked
    bulks: list[BulkView]


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of many messages, and what its buttons send."""
    pages = BulkPage(site)
    routes.get("/q/{name}/bulk", pages.on_get, Role.VIEWER)
    routes.get("/q/{name}/bulk.json", pages.on_get, Role.VIEWER)
    routes.post("/q/{name}/bulk", pages.begin, Role.OPERATOR)
    routes.post("/q/{name}/bulk/{bulk}", pages.change, Role.OPERATOR)


class BulkPage:
    """/q/NAME/bulk and its twin; for programs: `api.bulks`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        page.check_queue(self._site, name)
        form = _filled_in(req)
        offer = await self._offer(req, name, form)
        choice, why = await self._choice(req, name, form)
        views = await self._site.owners.demand(name, "list_bulks", {})
        facts: Facts = {
            "time": time.time(),
            "queue": name,
            "form": form,
            "offer": offer,
            "choice": choice,
            "why": why,
            "bulks": for_asker(req, _latest(cast(list[BulkView], views)), name),
        }
        values = {
            "facts": facts,
            "queue_name": name,
            "states": STATES,
            "fields": FIELDS[form["state"]],
            "causes": list(Cause),
            "kept": kept(form),
            "actions": offered_for_many(State(form["state"])),
            "labels": {word: action.label for word, action in _ACTIONS.items()},
            "chosen": _ACTIONS.get(form["action"]),
        }
        await page.show(req, resp, self._site, "bulk.html", values)

    async def _offer(
        self, req: Request, name: str, form: dict[str, str]
    ) -> BulkChoice | None:
        """Count the failures of a state by cause and by group, for who may change them; a
        page that only renews itself has been told."""
        principal: Principal = req.context.principal
        if "group" not in FIELDS[form["state"]] or req.get_header("X-RQ-Live"):
            return None
        if not principal.may(Role.OPERATOR):
            return None
        request: dict[str, Json] = {
            "filter": {"state": form["state"]},
            "dry_run": True,
            "groups": True,
        }
        try:
            choice = await self._site.owners.demand(name, "bulk", request)
        except RQError:  # too many, or the queue is closed: its fields are still there
            return None
        return for_asker(req, cast(BulkChoice, choice), name)

    async def _choice(
        self, req: Request, name: str, form: dict[str, str]
    ) -> tuple[BulkChoice | None, str]:
        """Count what matches, for who may change it; return that, or what is wrong."""
        principal: Principal = req.context.principal
        if not form["action"] or not principal.may(Role.OPERATOR):
            return None, ""
        try:
            request: dict[str, Json] = request_of(
                lambda field: form.get(field, ""), time.time()
            )
            request["dry_run"] = True
            choice = await self._site.owners.demand(name, "bulk", request)
        except RQError as error:
            return None, str(error)
        return cast(BulkChoice, choice), ""

    async def begin(self, req: Request, resp: Response, name: str) -> None:
        """Do one thing to all messages that match now."""
        form = await forms.read(req)
        request = request_of(form.get, time.time())
        if request["action"] == Word.MOVE:
            check_move(req, name, str(request["to"]))
        reply = await self._site.owners.ask(name, "bulk", {**request, "who": who(req)})
        text = _begun(reply[-1]) if reply[0] == "ok" else ""
        say(self._site, req, resp, form, reply, f"/q/{name}/bulk", text)

    async def change(self, req: Request, resp: Response, name: str, bulk: str) -> None:
        """End one that is at work."""
        form = await forms.read(req)
        forms.method(form, ("cancel",))
        reply = await self._site.owners.ask(name, "cancel_bulk", {"bulk": bulk})
        text = "it is ended; what it has changed stays so"
        say(self._site, req, resp, form, reply, f"/q/{name}/bulk", text)


def _filled_in(req: Request) -> dict[str, str]:
    """Return the fields of the form, "" for what is not filled in, or does nothing for
    messages of the state."""
    get = functools.partial(req.get_param, default="")
    state = get("state")
    form = {"state": state if state in STATES else "err"}
    form["action"] = action = get("action")
    form["to"] = get("to") or get(f"to_{action}")
    fields = FIELDS[form["state"]]
    form |= {name: get(name) if name in fields else "" for name in FILTER}
    form["ids"] = " ".join(req.get_param_as_list("ids", default=[]))
    if any(len(text) > _longest(name) for name, text in form.items()):
        raise BadInput(f"a field has more than {_LONGEST} characters")
    may = [row.word for row in offered_for_many(State(form["state"]))]
    if action not in may:
        form["action"] = ""
    return form


def _longest(name: str) -> int:
    return _MOST_IDS if name == "ids" else _LONGEST


def kept(form: Mapping[str, str]) -> str:
    """Return the filter as a part of an address, for the same one of another state."""
    return urlencode({name: form[name] for name in _OF_MESSAGE if form[name]})


def _latest(views: list[BulkView]) -> list[BulkView]:
    """Return those at work, and the last that have ended."""
    ended = [view for view in views if view["state"] != "open"][:_ENDED]
    return [view for view in views if view["state"] == "open"] + ended


def _begun(view: object) -> str:
    number = cast(BulkView, view)["messages"]
    return f"begun with {number:,} message{'' if number == 1 else 's'}"


def request_of(get: Callable[[str], str], now: float) -> dict[str, Json]:
    """Return what the fields of a form ask for: blank ones are not set. A due may be
    said as people say it, in UTC unless a zone is named."""
    wanted: dict[str, Json] = {"state": get("state")}
    wanted.update({name: get(name) for name in FILTER if get(name)})
    if ids := get("ids").split():
        wanted["ids"] = list(ids)
    if counted := get("before"):
        wanted["before"] = _counted(counted, now, str(wanted.pop("older", "")))
    action, to = _ACTIONS.get(get("action")), get("to").strip()
    request: dict[str, Json] = {"action": get("action"), "filter": wanted}
    for takes in action.takes if action else ():
        request["to"] = takes.said(to, now, UTC)
    return request


def _counted(text: str, now: float, older: str) -> float:
    """Return the moment before which a message came into its state: it was counted on the
    page that was sent, and is as old as was asked for."""
    try:
        counted = float(text)
    except ValueError:
        counted = math.nan
    if not math.isfinite(counted):
        raise BadInput(f"before is {text!r:.40}, not seconds since the epoch")
    return min(counted, now - moments.duration(older)) if older else counted
