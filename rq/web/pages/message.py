"""A message: what happened, why, what to do; and all that is known of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from falcon import HTTP_303
from falcon.asgi import Request, Response

from rq import names, wording
from rq.errors import NoSuchMessage
from rq.message import PARAMS
from rq.web import reading
from rq.web.pages import page, progress
from rq.web.pages.queue import known

if TYPE_CHECKING:
    from rq.web.site import Site

# Which verbs a message in a state can take, the likeliest first.
ACTIONS: dict[str, tuple[str, ...]] = {
    "prep": ("commit", "delete"),
    "que": ("run_now", "delete"),
    "run": ("cancel",),
    "done": ("clone", "delete"),
    "relayed": ("clone", "delete"),
    "err": ("retry", "ack", "clone", "delete"),
    "errack": ("retry", "clone", "delete"),
}
_HELD = frozenset(
    {"_txn", "_restored", reading.SILENT}
)  # facts with which nothing can be done
_TOLD_ELSEWHERE = wording.TOLD | {"acknowledged", *_HELD, *PARAMS}


class MessagePage:
    """GET /q/NAME/ID; its twin is the ancestor's /q/NAME/ID.json."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        if not msg_id:  # the address of the queue, with a slash
            known(self._site, name)
            resp.status = HTTP_303
            resp.set_header("Location", self._site.url(f"/q/{name}"))
            return
        told = await facts_of(self._site, name, msg_id)
        values = {
            "facts": told,
            "message": told,
            "queue_name": name,
            "shown": shown(told),
        }
        await page.show(req, resp, self._site, "message.html", values)


async def facts_of(site: Site, name: str, msg_id: str) -> dict[str, Any]:
    """Return all that is known of a message; NoSuchMessage for what is no id."""
    known(site, name)
    if not names.is_msg_id(msg_id.removeprefix(".")):
        raise NoSuchMessage(f"There is no message {msg_id!r:.80} in queue {name}.")
    return await reading.message(site, name, msg_id)


def shown(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page derives from a message's facts."""
    now = time.time()
    result = told["result"]
    state = "errack" if told.get("acknowledged") else told["state"]
    text = str(result.get("job_status") or "")
    started = result.get("started") if told["state"] == "run" else None
    return {
        "state": state,
        "text": text,
        "created": names.created(told["msg_id"]),
        "running_for": max(0.0, now - started) if started else None,
        "due_in": float(told["due"]) - now,
        "part": progress.part_done(text) if told["state"] == "run" else None,
        "silent": str(told.get(reading.SILENT, "")),
        "actions": () if told.keys() & _HELD else actions(state, result),
        "life": life(told, now),
        "params": [(one, told[one]) for one in PARAMS if one in told],
        "results": wording.results(result),
        "others": [
            (one, value)
            for one, value in told.items()
            if one not in _TOLD_ELSEWHERE and not _is_own(one, value, told)
        ],
    }


def actions(state: str, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the verbs that a message can take; one of many in a batch cannot be
    cancelled alone."""
    many = state == "run" and int(result.get("left") or 0) > 1
    return ("cancel_batch",) if many else ACTIONS.get(state, ())


def _is_own(name: str, value: Any, told: Mapping[str, Any]) -> bool:
    """Return whether `orig_msg_id` says no more than the message's own id."""
    return name == "orig_msg_id" and str(value).endswith(f"/{told['msg_id']}")


def life(told: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """Return the stations of a message: name, kind (past, now, failed, ahead), time."""
    state, result = told["state"], told["result"]
    created = names.created(told["msg_id"])
    attempt = int(told.get("attempt") or 0)
    finished = result.get("finished")
    ran = (result.get("run_us") or 0) / 1e6
    if state == "prep":
        return [_step("being prepared", "now", created), _step("waiting", "ahead")]
    if state == "que":
        steps = [_step("accepted", "past", created)]
        if attempt:
            steps.append(_step(f"attempt {attempt} ended", "past", finished))
        due = float(told["due"])
        steps.append(_step("waiting", "now", due if due > now else None, "due "))
        return [*steps, _step(f"attempt {attempt + 1}", "ahead")]
    if state == "run":
        return [
            _step("accepted", "past", created),
            _step(f"attempt {attempt} runs", "now", result.get("started"), "since "),
            _step("done or failed", "ahead"),
        ]
    steps = [_step("accepted", "past", created)]
    if attempt:
        began = finished - ran if finished else None
        steps.append(_step(f"attempt {attempt} started", "past", began))
    word, kind = {"done": ("done", "past"), "relayed": ("handed over", "past")}.get(
        state, ("failed", "failed")
    )
    return [*steps, _step(word, kind, finished)]


def _step(
    name: str, kind: str, when: float | None = None, before: str = ""
) -> dict[str, Any]:
    return {"name": name, "kind": kind, "when": when, "before": before}
