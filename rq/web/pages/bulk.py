"""Many messages of a queue: which match, what is done to all of them, how far that is."""

from __future__ import annotations

import time
from typing import TypedDict, cast

from falcon.asgi import Request, Response

from rq.access.roles import Principal, Role
from rq.errors import BadInput, RQError
from rq.message.action import Door
from rq.message.actions import at, offered_for_many
from rq.nesting import Json
from rq.replies import BulkChoice, BulkView
from rq.states import State
from rq.web.answers import for_asker
from rq.web.bulk_actions import FILTER, STATES, request_of
from rq.web.pages import page
from rq.web.site import Site

_LONGEST = 4096  # characters of a field
_ENDED = 20  # of those that have ended
_ACTIONS = at(Door.BULK)


class Facts(TypedDict):
    """What the page shows."""

    time: float
    queue: str
    form: dict[str, str]  # the fields of the form as they were filled in
    choice: BulkChoice | None  # what matches; None: nothing was asked
    why: str  # what is wrong with what was asked
    bulks: list[BulkView]


class BulkPage:
    """GET /q/NAME/bulk and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        page.check_queue(self._site, name)
        form = _filled_in(req)
        choice, why = await self._choice(req, name, form)
        views = await self._site.owners.demand(name, "list_bulks", {})
        facts: Facts = {
            "time": time.time(),
            "queue": name,
            "form": form,
            "choice": choice,
            "why": why,
            "bulks": for_asker(req, _latest(cast(list[BulkView], views)), name),
        }
        values = {
            "facts": facts,
            "queue_name": name,
            "states": STATES,
            "actions": offered_for_many(State(form["state"])),
            "labels": {word: action.label for word, action in _ACTIONS.items()},
            "chosen": _ACTIONS.get(form["action"]),
        }
        await page.show(req, resp, self._site, "bulk.html", values)

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


def _filled_in(req: Request) -> dict[str, str]:
    """Return the fields of the form, "" for what is not filled in."""
    names = ("state", "action", "to", *FILTER)
    form = {name: req.get_param(name, default="") or "" for name in names}
    if any(len(text) > _LONGEST for text in form.values()):
        raise BadInput(f"a field has more than {_LONGEST} characters")
    if form["state"] not in STATES:
        form["state"] = "err"
    may = [row.word for row in offered_for_many(State(form["state"]))]
    if form["action"] not in may:
        form["action"] = ""
    return form


def _latest(views: list[BulkView]) -> list[BulkView]:
    """Return those at work, and the last that have ended."""
    ended = [view for view in views if view["state"] != "open"][:_ENDED]
    return [view for view in views if view["state"] == "open"] + ended
