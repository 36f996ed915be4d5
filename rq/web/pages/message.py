"""A message: what happened, why, what to do; and all that is known of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

from falcon import HTTP_303
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.errors import NoSuchMessage, RQError
from rq.message import lineage
from rq.message.action import Action, Door
from rq.message.actions import offered
from rq.message.causes import Cause
from rq.message.table import APART_ON_PAGE, PARAMS
from rq.replies import AttemptsView
from rq.web import progress, reading
from rq.web.answers import for_asker
from rq.web.pages import page
from rq.web.reading import Message
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words import wording
from rq.words.states import State

_STATE_OF = {
    "held": State.QUE,
    "waits": State.QUE,
    "errack": State.DISMISSED,
}  # as this page calls them
_ENDS = {"done": ("done", "past"), "relayed": ("relayed", "past")}
_HELD = frozenset(
    {"_txn", "_restored", reading.SILENT}
)  # facts with which nothing can be done


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of a message; its twin is the ancestor's /q/NAME/ID.json."""

    async def show(req: Request, resp: Response, name: str, msg_id: str) -> None:
        if not msg_id:  # the address of the queue, with a slash
            page.check_queue(site, name)
            resp.status = HTTP_303
            resp.set_header("Location", site.url(f"/q/{name}"))
            return
        message = await facts_of(site, req, name, msg_id)
        values = {
            "facts": message,
            "message": message,
            "queue_name": name,
            "view": view_of(message),
            "attempts": await attempts_of(site, req, name, message),
        }
        await page.show(req, resp, site, "message.html", values)

    routes.get("/q/{name}/{msg_id}", show, Role.VIEWER)


async def attempts_of(
    site: Site, req: Request, name: str, message: Message
) -> AttemptsView:
    """Return what is kept of the attempts on a message that was tried before; nothing of
    one that has gone meanwhile."""
    if int(message.get("attempt") or 0) > 1:
        with contextlib.suppress(RQError):
            kept = await reading.attempts(site, name, message["msg_id"])
            return for_asker(req, kept, name)
    return {"attempts": [], "left_out": 0}


async def facts_of(site: Site, req: Request, name: str, msg_id: str) -> Message:
    """Return all that the asker may know of a message; NoSuchMessage for what is no id."""
    page.check_queue(site, name)
    if not names.is_msg_id(msg_id.removeprefix(".")):
        raise NoSuchMessage(f"There is no message {msg_id!r:.80} in queue {name}.")
    return for_asker(req, await reading.message(site, name, msg_id), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A station in the life of a message."""

    name: str
    kind: str  # past, now, failed or ahead
    when: float | None = None  # epoch seconds
    before: str = ""  # a word before its time


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the page derives from a message's facts."""

    state: str
    word: str  # for the state, where it has a better one
    text: str
    created: float  # epoch seconds
    running_for: float | None  # seconds
    due_in: float  # seconds
    part: float | None  # that is done, from 0 to 1, if its script says so
    silent: str  # why its folder was read, and not its owner asked
    actions: list[Action]
    life: list[Step]
    params: list[tuple[str, object]]
    results: list[tuple[str, str]]
    kin: list[lineage.Kin]
    others: list[tuple[str, object]]


def view_of(message: Message) -> View:
    """Return what the page derives from a message's facts."""
    now = time.time()
    fields: Mapping[str, object] = message
    result, runs = message["result"], message["state"] == "run"
    state = "errack" if message.get("acknowledged") else message["state"]
    text = str(result.get("job_status") or "")
    started = _seconds(result, "started") if runs else None
    return View(
        state=state,
        word=_word(_how(message, state), result),
        text=text,
        created=names.created(message["msg_id"]),
        running_for=max(0.0, now - started) if started else None,
        due_in=float(message["due"]) - now,
        part=progress.part_done(text) if runs else None,
        silent=str(message.get(reading.SILENT, "")),
        actions=[] if message.keys() & _HELD else actions(_how(message, state), result),
        life=life(message, now),
        params=[(name, fields[name]) for name in PARAMS if name in message],
        results=[
            *(wording.at_work(result, now) if runs else []),
            *wording.results(result),
        ],
        kin=lineage.kin(message, result),
        others=_others(message),
    )


def _others(message: Message) -> list[tuple[str, object]]:
    apart = APART_ON_PAGE | lineage.fields_of_kin(message)
    return [
        (name, value)
        for name, value in message.items()
        if name not in apart and not _is_own(name, value, message)
    ]


def _how(message: Message, state: str) -> str:
    """Return the state of a message, or that it is held there, or waits for others."""
    if state == "que" and message.get("held"):
        return "held"
    waits = message.get("after") and not message.get("after_end")
    return "waits" if state == "que" and waits else state


def _word(state: str, result: Mapping[str, object]) -> str:
    """Return the word for a state where the usual one would mislead."""
    if state in ("held", "waits"):
        return state
    is_cancelled = state in ("err", "errack") and result.get("cause") == Cause.CANCELLED
    return "cancelled" if is_cancelled else ""


def _seconds(result: Mapping[str, object], name: str) -> float | None:
    """Return a time that an attempt's result holds; epoch seconds."""
    value = result.get(name)
    return float(value) if isinstance(value, int | float) else None


def actions(how: str, result: Mapping[str, object]) -> list[Action]:
    """Return what may be done to a message that is so; one of many in a batch cannot be
    cancelled alone."""
    many = how == "run" and int(str(result.get("left") or 0)) > 1
    return offered(
        Door.PAGE,
        _STATE_OF.get(how) or State(how),
        held=how == "held",
        batch=many,
        waits=how == "waits",
    )


def _is_own(name: str, value: object, message: Message) -> bool:
    """Return whether `orig_msg_id` says no more than the message's own id."""
    return name == "orig_msg_id" and str(value).endswith(f"/{message['msg_id']}")


def life(message: Message, now: float) -> list[Step]:
    """Return the stations of a message."""
    state, result = message["state"], message["result"]
    created = names.created(message["msg_id"])
    attempt = int(message.get("attempt") or 0)
    finished = _seconds(result, "finished")
    ran = (_seconds(result, "run_us") or 0.0) / 1e6
    if state == "prep":
        return [_step("being prepared", "now", created), _step("waiting", "ahead")]
    if state == "que":
        steps = [_step("accepted", "past", created)]
        if attempt:
            steps.append(_step(f"attempt {attempt} ended", "past", finished))
        if (how := _how(message, state)) != "que":
            now_is = "held" if how == "held" else "waits for other messages"
            ahead = _step(f"attempt {attempt + 1}", "ahead")
            return [*steps, _step(now_is, "now"), ahead]
        due = float(message["due"])
        steps.append(_step("waiting", "now", due if due > now else None, "due "))
        return [*steps, _step(f"attempt {attempt + 1}", "ahead")]
    if state == "run":
        return [
            _step("accepted", "past", created),
            _step(
                f"attempt {attempt} runs", "now", _seconds(result, "started"), "since "
            ),
            _step("done or failed", "ahead"),
        ]
    steps = [_step("accepted", "past", created)]
    if attempt:
        began = finished - ran if finished else None
        steps.append(_step(f"attempt {attempt} started", "past", began))
    word, kind = _ENDS.get(state, ("failed", "failed"))
    return [*steps, _step(_word(state, result) or word, kind, finished)]


def _step(name: str, kind: str, when: float | None = None, before: str = "") -> Step:
    return Step(name=name, kind=kind, when=when, before=before)
