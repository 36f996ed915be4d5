"""A queue: how it is, what is in it, what can be done with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq import names, wording
from rq.config import read_json, read_queue, secrets
from rq.errors import BadConfig, BadInput, NoSuchQueue
from rq.layout import QueueDir
from rq.message import PARAMS
from rq.states import State
from rq.web import owing, reading
from rq.web.answers import sees_secrets
from rq.web.pages import facts, page, progress
from rq.web.txn import listed as listed_txn

if TYPE_CHECKING:
    from rq.web.site import Site

# Tab in the URL: (state as the owner lists it, title).
TABS = {
    "prep": ("prep", "Being prepared"),
    "que": ("que", "Waiting"),
    "run": ("run", "Running"),
    "err": ("err", "Failed"),
    "errack": ("dismissed", "Acknowledged"),
    "done": ("done", "Done"),
    "relayed": ("relayed", "Handed over"),
}
# What the first tab shows of each, in this order.
_FIRST = {"run": 20, "err": 10, "que": 10, "prep": 5, "done": 15, "relayed": 10}
_PAGE = 50
_SEARCHED = 500


class QueuePage:
    """GET /q/NAME and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        known(self._site, name)
        tab = req.get_param("state", default="")
        if tab not in TABS:
            tab = ""
        wanted = (req.get_param("find") or req.get_param("filter") or "")[:256]
        after = _cursor(req.get_param("after", default=""))
        told = await self._facts(name, tab, wanted, after)
        values = {
            "facts": told,
            "queue": told["queue"],
            "tab": tab,
            "tabs": TABS,
            "find": wanted,
            "after": after,
            "searched": _SEARCHED,
            "config_rows": _config(self._site, name, open_to=sees_secrets(req)),
        }
        await page.show(req, resp, self._site, "queue.html", values)

    async def _facts(
        self, name: str, tab: str, wanted: str, after: str
    ) -> dict[str, Any]:
        site, now = self._site, time.time()
        told, reply = await asyncio.gather(
            facts.supervisor(site), facts.detail(site, name)
        )
        children = {one["name"]: one for one in facts.children(told)}
        row = facts.queue_row(site, name, reply, children.get(name, {}))
        owes = row["answers"] and row["owed"] > 0
        if not row["answers"]:
            row["counts"] = await reading.counts(site, name)
        sections = await self._sections(row, tab, wanted, after)
        return {
            "time": now,
            "operational": bool(told),
            "queue": row,
            "child": children.get(name, {}),
            "silent": _silence(site, row),
            "trouble": facts.trouble({}, [row]),
            "running": facts.running([row], now),
            "sections": sections,
            "owed": await owing.listed(site, [name]) if owes else [],
            "transactions": await self._transactions(row),
        }

    async def _transactions(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        if not row["answers"]:
            return []
        told = await self._site.owners.demand(row["name"], "list_txns")
        return [listed_txn(one) for one in told]

    async def _sections(
        self, row: Mapping[str, Any], tab: str, wanted: str, after: str
    ) -> list[dict[str, Any]]:
        """Return the lists to show; one, long, when a tab is open or when searching."""
        if tab:
            shown = {tab: _SEARCHED if wanted else _PAGE}
        else:
            counts = row["counts"]
            limit = _SEARCHED if wanted else 0
            # Where nobody has counted, each state is looked into.
            there = [one for one in _FIRST if counts.get(one, not counts)]
            shown = {one: limit or _FIRST[one] for one in there}
        lists = await asyncio.gather(
            *(self._list(row, one, limit, after) for one, limit in shown.items())
        )
        return [
            _section(row, one, limit, rows, wanted)
            for (one, limit), rows in zip(shown.items(), lists, strict=True)
        ]

    async def _list(
        self, row: Mapping[str, Any], tab: str, limit: int, after: str
    ) -> list[dict[str, Any]]:
        state = State(TABS[tab][0])
        return await reading.rows(self._site, row["name"], state, limit, after)


def _silence(site: Site, row: Mapping[str, Any]) -> str:
    """Return why the folders are read, and not the owner asked; "" when it is."""
    if row["answers"] and row["admin"] != "DOWN":
        return ""
    return reading.why_silent(site, row["name"])


def known(site: Site, name: str) -> None:
    """Raise NoSuchQueue unless there is such a queue."""
    if not names.is_queue_name(name) or not site.root.queue(name).config.is_file():
        raise NoSuchQueue(f"There is no queue {name!r:.80}.")


def _cursor(text: str) -> str:
    """Return where a list goes on; a wrong cursor is the beginning."""
    try:
        return names.msg_id(text) if text else ""
    except BadInput:
        return ""


def _section(
    row: Mapping[str, Any],
    tab: str,
    limit: int,
    rows: list[dict[str, Any]],
    wanted: str,
) -> dict[str, Any]:
    now = time.time()
    found = [listed(row, tab, one, now) for one in rows]
    if wanted:
        found = [one for one in found if _holds(one, wanted.lower())]
    return {
        "tab": tab,
        "title": TABS[tab][1],
        "count": row["counts"].get(tab),
        "rows": found,
        "next": rows[-1]["msg_id"] if len(rows) == limit else "",
    }


def _holds(row: Mapping[str, Any], wanted: str) -> bool:
    texts = [row["msg_id"], row["text"], *(str(row.get(one, "")) for one in PARAMS)]
    return any(wanted in text.lower() for text in texts)


def listed(
    queue: Mapping[str, Any], tab: str, row: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Return a message's row with what a reader needs beside the owner's facts."""
    text = str(row["status"]).partition(" - ")[2]
    if tab == "que":
        text = wording.reason(text)
    elif tab in ("err", "errack"):
        text = wording.shortly(text)
    created = names.created(row["msg_id"])
    return {
        **row,
        "tab": tab,
        "text": text or (waiting(queue, row, now) if tab == "que" else ""),
        "created": created,
        "age": max(0.0, now - created),
        "due_in": float(row["due"]) - now,
        "part": progress.part_done(text) if tab == "run" else None,
    }


def waiting(queue: Mapping[str, Any], row: Mapping[str, Any], now: float) -> str:
    """Return why a message waits, as its owner says it."""
    if queue.get("restored"):
        return str(row.get("waiting") or "")
    if queue["admin"] != "UP":
        return (
            "the queue is paused" if queue["admin"] == "PAUSE" else "the queue is down"
        )
    if not queue["answers"]:
        return "nobody answers for the queue"
    if queue["oper"] != "UP":
        return "the script cannot be started"
    if float(row["due"]) > now:
        return ""  # its due time says it
    return str(row.get("waiting") or "")


def _config(site: Site, name: str, *, open_to: bool) -> list[tuple[str, Any]]:
    """Return the settings of a queue; the form that its file has when it is broken."""
    path = site.root.queue(name)
    try:
        found = _settings(path)
    except BadConfig as error:
        return [("config.json", str(error))]
    return list((found if open_to else secrets.masked(found)).items())


def _settings(path: QueueDir) -> dict[str, Any]:
    try:
        return read_queue(path).to_json()
    except BadConfig:
        return read_json(path.config)
