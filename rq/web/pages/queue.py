"""A queue: how it is, what is in it, what can be done with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, cast

from falcon.asgi import Request, Response

from rq import names, tables
from rq.access.roles import Role
from rq.config import read_json, read_queue, secrets
from rq.days import Days
from rq.errors import BadConfig, BadInput, RQError
from rq.index.rows import ListQuestion
from rq.layout import QueueDir
from rq.message.action import Action, Door
from rq.message.actions import Word, offered
from rq.message.filter import holds
from rq.message.table import PARAMS
from rq.message.waits import Reason
from rq.replies import (
    ChildView,
    Counts,
    Elsewhere,
    LeasesView,
    MessageRow,
    RemoteWorker,
    elsewhere,
)
from rq.replies.verdict import TroubleView
from rq.web import indexed, progress, reading, views
from rq.web.answers import for_asker, sees_secrets
from rq.web.pages import deliveries, facts, notices, page
from rq.web.pages.facts import QueueRow
from rq.web.pages.notices import Notices
from rq.web.pages.txn import TransactionRow
from rq.web.pages.txn import listed_txn as listed_txn
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words import wording
from rq.words.states import State

# Tab in the URL: (state as the owner lists it, title).
TABS = {
    "prep": ("prep", "Being prepared"),
    "que": ("que", "Waiting"),
    "run": ("run", "Running"),
    "err": ("err", "Failed"),
    "errack": ("dismissed", "Acknowledged"),
    "done": ("done", "Done"),
    "relayed": ("relayed", "Relayed"),
}
# What the first tab shows of each, in this order.
_FIRST = {"run": 20, "err": 10, "que": 10, "prep": 5, "done": 15, "relayed": 10}
_PAGE = 50
_SEARCHED = 500
_NEWEST = "99991231.2359.59.999.9"  # an id behind which all are
_WORKERS = 30  # of those elsewhere that are shown


class ListedRow(MessageRow, total=False):
    """A message in a list, with what a reader needs beside the owner's facts."""

    tab: str
    text: str
    created: float  # epoch seconds
    age: float  # seconds
    due_in: float  # seconds
    part: float | None  # that is done, from 0 to 1, if its script says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The messages of a state."""

    tab: str
    title: str
    count: int | None  # None: they are not counted
    rows: list[ListedRow]
    next: str  # where the list goes on; "" at its end
    more: bool = False  # of a list that is sorted: there are others


class Facts(TypedDict):
    """What the page shows."""

    time: float
    operational: bool
    queue: QueueRow
    child: ChildView
    silent: str  # why the folders are read, and not the owner asked
    trouble: list[TroubleView]
    running: list[facts.RunningRow]
    sections: list[Section]
    why_unsorted: str  # "" when it is as was asked for
    owed: list[deliveries.OwedRow]
    notices: Notices
    transactions: list[TransactionRow]
    leases: (
        LeasesView | None
    )  # who works elsewhere; None: the queue hands out no leases


_ENDED = ("err", "errack", "done", "relayed")  # tabs whose lists can be sorted
_ORDERS = ("ended", "ran", "waited", "attempt", "accepted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """In which order a tab lists its messages."""

    tab: str
    order: str
    is_descending: bool
    offset: int

    @classmethod
    def of(cls, tab: str, fields: Mapping[str, str]) -> Sorting | None:
        """Return what an address asks for; None: the newest first, as owners list."""
        order = fields["sort"].removeprefix("-")
        if tab not in _ENDED or order not in _ORDERS:
            return None
        offset = fields["offset"][:9]
        return cls(
            tab=tab,
            order=order,
            is_descending=fields["sort"].startswith("-"),
            offset=int(offset) if offset.isdecimal() else 0,
        )

    def question(self, queue: str, state: State, limit: int) -> ListQuestion:
        return ListQuestion(
            queue=queue,
            state=state,
            order=self.order,
            is_descending=self.is_descending,
            limit=limit,
            offset=self.offset,
        )


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of a queue and its twin; what is done to queues: `queue_admin`."""
    queue = QueuePage(site)
    routes.get("/q/{name}", queue.on_get, Role.VIEWER)
    routes.get("/q/{name}/queue.json", queue.on_get, Role.VIEWER)


class QueuePage:
    """GET /q/NAME and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        page.check_queue(self._site, name)
        tab = req.get_param("state", default="")
        if tab not in TABS:
            tab = ""
        wanted = (req.get_param("find") or req.get_param("filter") or "")[:256]
        after = _cursor(req.get_param("after", default=""))
        fields = page.filled_in(req, ("sort", "offset"))
        sorting = Sorting.of(tab if not wanted else "", fields)
        queue_facts = await self._facts(req, name, (tab, wanted, after), sorting)
        values = {
            "facts": queue_facts,
            "queue": queue_facts["queue"],
            "tab": tab,
            "tabs": TABS,
            "find": wanted,
            "after": after,
            "searched": _SEARCHED,
            "most": _PAGE,
            "sorts": tab in _ENDED and not wanted,
            "sort": f"{'-' * sorting.is_descending}{sorting.order}" if sorting else "",
            "offset": fields["offset"] if sorting else "",
            "address": lambda **changes: page.address(
                {"state": tab, **fields, **changes}
            ),
            "quick": quick,
            "has_days": Days(self._site.root, name).there,
            "has_tables": tables.are_any(self._site.root, name),
            "shown": _chosen_workers(
                queue_facts["leases"],
                queue_facts["queue"].get("elsewhere"),
                self._site.config.queue_url(name),
            ),
            "config_rows": _config(self._site, name, open_to=sees_secrets(req)),
        }
        await page.show(req, resp, self._site, "queue.html", values)

    async def _facts(
        self,
        req: Request,
        name: str,
        choice: tuple[str, str, str],
        sorting: Sorting | None,
    ) -> Facts:
        site, now = self._site, time.time()
        status, detail = await asyncio.gather(
            views.supervisor(site.owners), views.detail(site.owners, name)
        )
        child = facts.child_of(status, name)
        row = facts.queue_row(site, name, detail, child)
        owes = row["answers"] and row["owed"] > 0
        if not row["answers"]:
            row["counts"] = await reading.counts(site, name)
            row["rows"] = await reading.rows_to_come(site, name)
        why_unsorted = ""
        sections = await self._sections(req, row, *choice)
        if sorting is not None and row["answers"]:
            try:
                sections = [await self._sorted(req, row, sorting)]
            except RQError as error:
                why_unsorted = f"The list is not sorted: {error}"
        return {
            "time": now,
            "operational": bool(status),
            "queue": row,
            "child": child,
            "silent": _silence(site, row),
            "trouble": facts.trouble({}, [row]),
            "running": facts.running([row], now),
            "sections": sections,
            "why_unsorted": why_unsorted,
            "owed": await deliveries.listed(site, [name]) if owes else [],
            "notices": await self._notices(row),
            "transactions": await self._transactions(row),
            "leases": await self._leases(row),
        }

    async def _notices(self, row: QueueRow) -> Notices:
        if not row["answers"]:
            return {"tells": [], "last": []}
        return await notices.of_queue(self._site, row["name"])

    async def _transactions(self, row: QueueRow) -> list[TransactionRow]:
        if not row["answers"]:
            return []
        rows = await views.transactions(self._site.owners, row["name"], {})
        return [listed_txn(view) for view in rows]

    async def _leases(self, row: QueueRow) -> LeasesView | None:
        if not row["answers"]:
            return None
        try:
            view = await views.leases(self._site.owners, row["name"], {"limit": 1})
        except RQError:  # its owner has gone by now
            return None
        return view if view["max"] or view["count"] else None

    async def _sections(
        self, req: Request, row: QueueRow, tab: str, wanted: str, after: str
    ) -> list[Section]:
        """Return the lists to show; one, long, when a tab is open or when searching."""
        limits = _limits(row["counts"], tab, searching=bool(wanted))
        lists = await asyncio.gather(
            *(
                self._list(row, tab, limit, after, searching=bool(wanted))
                for tab, limit in limits.items()
            )
        )
        return [  # what is searched is what the asker may see
            _section(row, tab, after, limit, for_asker(req, rows, row["name"]), wanted)
            for (tab, limit), rows in zip(limits.items(), lists, strict=True)
        ]

    async def _sorted(self, req: Request, row: QueueRow, sorting: Sorting) -> Section:
        """Return a page of a list in an order that the index knows; what stands in it is
        what the owner says."""
        state, limit = State(TABS[sorting.tab][0]), _PAGE + 1
        question = sorting.question(row["name"], state, limit)
        ids, _ = await indexed.answer(
            self._site, req, lambda index, visible: index.listed(question, visible)
        )
        wanted = {"ids": list(ids[:_PAGE])}
        request = {"state": str(state), "limit": _PAGE, "filter": wanted}
        rows = (await views.rows(self._site.owners, row["name"], request))[0]
        place = {msg_id: number for number, msg_id in enumerate(ids)}
        rows.sort(key=lambda listed: place.get(listed["msg_id"], limit))
        messages = for_asker(req, rows, row["name"])
        section = _section(row, sorting.tab, "", limit, messages, "")
        return replace(section, more=len(ids) == limit)

    async def _list(
        self, row: QueueRow, tab: str, limit: int, after: str, *, searching: bool
    ) -> list[MessageRow]:
        state = State(TABS[tab][0])
        order = reading.NEXT if state is State.QUE and not searching else ""
        return await reading.rows(self._site, row["name"], state, limit, after, order)


def _limits(counts: Counts, tab: str, *, searching: bool) -> dict[str, int]:
    """Return how many messages of which states to list."""
    if tab:
        return {tab: _SEARCHED if searching else _PAGE}
    # Where they are not counted, each state is looked into.
    there = [state for state in _FIRST if counts.get(state, not counts)]
    return {state: _SEARCHED if searching else _FIRST[state] for state in there}


def _silence(site: Site, row: QueueRow) -> str:
    """Return why the folders are read, and not the owner asked; "" when it is."""
    if row["answers"] and row["admin"] != "DOWN":
        return ""
    return reading.why_silent(site, row["name"])


def _cursor(text: str) -> str:
    """Return where a list goes on; a wrong cursor is the beginning."""
    try:
        return names.msg_id(text) if text else ""
    except BadInput:
        return ""


def _section(
    row: QueueRow,
    tab: str,
    after: str,
    limit: int,
    messages: list[MessageRow],
    wanted: str,
) -> Section:
    now = time.time()
    rows = [listed(tab, message, now) for message in messages]
    if wanted:
        rows = [row for row in rows if _holds(row, wanted)]
    return Section(
        tab=tab,
        title=TABS[tab][1],
        count=row["counts"].get(tab),
        rows=rows,
        next="" if len(messages) < limit else _goes_on(tab, after or wanted, messages),
    )


def _goes_on(tab: str, newest: str, messages: list[MessageRow]) -> str:
    """Return behind which id a list goes on; `newest`: it is one of the newest, or of
    a search. What runs next is on one page; from there
    on all that wait are listed, the newest first."""
    return _NEWEST if tab == "que" and not newest else messages[-1]["msg_id"]


def _holds(row: ListedRow, words: str) -> bool:
    """As a filter's `find` has it, so that all that match are those that were found."""
    texts = [row["msg_id"], row["text"], row.get("cause", "")]
    texts += [str(row.get(name, "")) for name in PARAMS]
    return holds(words, texts)


def listed(tab: str, row: MessageRow, now: float) -> ListedRow:
    """Return a message's row with what a reader needs beside the owner's facts."""
    text = str(row["status"]).partition(" - ")[2]
    text = row.get("next_attempt") or wording.in_list(tab, text)
    created = names.created(row["msg_id"])
    more = {
        "tab": tab,
        "text": (waiting(row) if tab == "que" else "") or text,
        "created": created,
        "age": max(0.0, now - created),
        "due_in": float(row["due"]) - now,
        "part": progress.part_done(text) if tab == "run" else None,
    }
    return cast(ListedRow, {**row, **more})


def quick(row: ListedRow) -> list[Action]:
    """Return what may be done to a message from a list: one that is due starts anyway."""
    why = row.get("why")
    is_held = why is not None and why["reason"] == Reason.HELD
    many = row["tab"] == "run" and int(row.get("left") or 0) > 1
    state = State(TABS[row["tab"]][0])
    may = offered(Door.PAGE, state, held=is_held, batch=many)
    is_due = row["due_in"] <= 0
    return [a for a in may if a.quick and not (a.word is Word.RUN and is_due)]


def waiting(row: MessageRow) -> str:
    """Return why a message waits, unless its due time says it."""
    why = row.get("why")
    return "" if why is None or why["reason"] == Reason.DUE else why["text"]


def _config(site: Site, name: str, *, open_to: bool) -> list[tuple[str, object]]:
    """Return the settings of a queue, or what its file holds when that is broken."""
    path = site.root.queue(name)
    try:
        settings = _settings(path)
    except BadConfig as error:
        return [("config.json", str(error))]
    return list((settings if open_to else secrets.masked(settings)).items())


def _settings(path: QueueDir) -> dict[str, object]:
    try:
        return read_queue(path).to_json()
    except BadConfig:
        return read_json(path.config)


# ---- the workers elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers elsewhere that a page has room for."""

    rows: list[RemoteWorker]
    more: int  # that are left out
    terms: str  # on which they get messages; "" when they get none any more
    start: str  # the command that starts one


def _chosen_workers(
    view: LeasesView | None, every: Elsewhere | None, url: str
) -> Workers:
    """Return the workers to show, in an order that lasts: those that are there first."""
    if view is None:
        return Workers(rows=[], more=0, terms="", start="")
    rows = sorted(view["workers"], key=lambda row: (not row["there"], row["by"]))
    pull, there = view["pull"], 0 if every is None else every["workers"]
    return Workers(
        rows=rows[:_WORKERS],
        more=max(0, max(len(rows), there) - _WORKERS),
        terms="" if pull is None else elsewhere.terms(pull),
        start="" if pull is None else elsewhere.command(url, pull),
    )
