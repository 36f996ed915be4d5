"""What pages show, gathered from owners, supervisor and timers, all at the same time.

Everything is asked for and nothing is listed to be counted: a page costs the same with
ten messages and with a million.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict, cast

from rq.config import queues as all_queues
from rq.config import room
from rq.config.admin import admin_status, pause_of
from rq.errors import RQError, Unreachable
from rq.files import disk
from rq.layout import Root
from rq.message import waits
from rq.replies import (
    ChildView,
    Detail,
    Running,
    SupervisorStatus,
    TimersStatus,
    health,
    verdict,
)
from rq.replies.verdict import Trouble, TroubleView
from rq.rpc.broker import health as broker
from rq.web import progress, views
from rq.web.pages import sparklines
from rq.web.site import Site

BUILT_IN = ("cleaner", "debug", "demo", "notice", "relay", "rq_router", "spark-history",
            "webhook")  # fmt: skip
UNKNOWN = "-"
_DISK_FOR = 10.0  # seconds that facts of the disk are kept
_COUNTED = ("prep", "que", "run", "done", "relayed", "err", "errack")


def queue_names(root: Root) -> list[str]:
    """Return the queues of a root: people's own first, then those that come with RQ."""
    return sorted(all_queues.names_of(root), key=lambda name: (name in BUILT_IN, name))


class Timers(TimersStatus, total=False):
    """What the timers process says."""

    asleep: str  # why it does not answer


async def timers(site: Site) -> Timers:
    """Return all timers, the next one first."""
    try:
        status = await views.timers(site.owners)
    except RQError as error:
        nothing = {"timers": [], "errors": {}, "asleep": str(error)}
        return cast(Timers, nothing)
    rows = sorted(status["timers"], key=lambda timer: timer["due"] or math.inf)
    return cast(Timers, {**status, "timers": rows})


class QueueRow(Detail, total=False):
    """A queue on a page; where its owner does not answer, most of it is missing."""

    answers: bool
    built_in: bool
    child: ChildView


async def queues(site: Site, status: SupervisorStatus) -> list[QueueRow]:
    """Return a row for each queue, whether its owner answers or not."""
    every = queue_names(site.root)
    details = await views.details(site.owners, every)
    return _queue_rows(site, every, details, status)


async def all_of_them(
    site: Site, seconds: float
) -> tuple[SupervisorStatus, list[QueueRow]]:
    """Return what the supervisor says, {} if nothing, and a row for each queue. All are
    asked at once, and after so many seconds none is waited for."""
    every = queue_names(site.root)
    status, details = await asyncio.gather(
        views.supervisor(site.owners, seconds),
        views.details(site.owners, every, seconds),
    )
    return status, _queue_rows(site, every, details, status)


def _queue_rows(
    site: Site,
    names: Sequence[str],
    details: Sequence[Detail | RQError],
    status: SupervisorStatus,
) -> list[QueueRow]:
    children = _children(status)
    return [
        queue_row(site, name, detail, children.get(name, {}))
        for name, detail in zip(names, details, strict=True)
    ]


def child_of(status: SupervisorStatus, queue: str) -> ChildView:
    """Return what the supervisor says of a queue's process; {} when it says nothing."""
    return _children(status).get(queue, {})


def _children(status: SupervisorStatus) -> Mapping[str, ChildView]:
    every = status.get("children") or ()
    return {child["name"]: child for child in every if child["kind"] == "queue"}


def queue_row(
    site: Site, name: str, detail: Detail | RQError, child: ChildView
) -> QueueRow:
    """Return what is known of a queue: from its owner, or why that does not answer."""
    if not isinstance(detail, RQError):
        # Its answer itself, since there may be thousands of rows, which are kept.
        answer = cast(QueueRow, detail)
        answer.update({"name": name, "answers": True, "built_in": name in BUILT_IN})
        return answer
    admin, pause = str(admin_status(site.root, name)), pause_of(site.root, name)
    silent = child.get("state") or UNKNOWN
    row = {
        "name": name,
        "answers": False,
        "built_in": name in BUILT_IN,
        "child": dict(child),
        "status": admin if admin != "UP" else silent,
        "admin": admin,
        "paused": None if pause is None else waits.pause_view(**asdict(pause)),
        "oper": UNKNOWN,
        "reason": child.get("reason") or _silence(name, detail),
        "counts": {},
        "rows": 0,
        "accepting": False,
        "closed_reason": None,
        "num_workers": 0,
        "slots_used": 0,
        "elsewhere": None,
        "running": [],
        "oldest_due_age": None,
        "next_due": None,
        "series": sparklines.EMPTY,
        "uptime": None,
        "pid": child.get("pid"),
    }
    return cast(QueueRow, row)


def _silence(queue: str, error: RQError) -> str:
    if isinstance(error, Unreachable):
        return f"its process is not running; log/queue-{queue}.log may say why"
    return str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of all queues, for the health strip."""

    prep: int
    que: int
    run: int
    done: int
    relayed: int
    err: int
    errack: int
    slots: int
    slots_used: int
    leased: int  # messages that are worked on elsewhere
    oldest_due_age: float  # seconds
    oldest_in: str  # the queue of that message; "" when nothing is due
    err_in: list[str]  # the queues that have errors


def totals(rows: Sequence[QueueRow]) -> Totals:
    """Return the sums that the health strip shows."""
    ages = [(row["oldest_due_age"] or 0.0, row["name"]) for row in rows]
    oldest, where = max(ages, default=(0.0, ""))
    sums = {
        state: sum(row["counts"].get(state, 0) for row in rows) for state in _COUNTED
    }
    return Totals(
        **sums,
        slots=sum(row["num_workers"] for row in rows),
        slots_used=sum(row.get("slots_used", 0) for row in rows),
        leased=sum(view["leases"] for row in rows if (view := row.get("elsewhere"))),
        oldest_due_age=oldest,
        oldest_in=where if oldest else "",
        err_in=[row["name"] for row in rows if row["counts"].get("err")],
    )


_For = TypedDict("_For", {"for": float})  # seconds; no name of a field in a class


class RunningRow(Running, _For, total=False):
    """A message that runs, or a batch of them, on a page."""

    queue: str
    part: float | None  # that is done, from 0 to 1, if its script says so


def running(rows: Sequence[QueueRow], now: float) -> list[RunningRow]:
    """Return the messages that run, those that run longest first."""
    at_work = [
        _running(row["name"], message, now)
        for row in rows
        for message in row["running"]
    ]
    return sorted(at_work, key=lambda row: (-row["for"], row["msg_id"]))


def _running(queue: str, message: Running, now: float) -> RunningRow:
    since = message.get("since")
    row = {
        **message,
        "queue": queue,
        "for": max(0.0, now - since) if since else 0.0,
        "part": progress.part_done(str(message.get("status") or "")),
    }
    return cast(RunningRow, row)


async def troubles(
    site: Site, status: SupervisorStatus, rows: Sequence[QueueRow]
) -> list[Trouble]:
    """Return the verdict on all: what a person should look at, the worst first."""
    _, of_broker = await asyncio.to_thread(broker.look, site.root, status)
    seen = [_seen(row) for row in rows]
    every = health.of_all(status, seen, is_running=bool(status))
    return verdict.folded([*room.soon(site.root, site.config), *every, *of_broker])


def troubles_of(rows: Sequence[QueueRow], *, is_running: bool) -> list[Trouble]:
    """Return the verdict on some queues, for users who see no others."""
    seen = [_seen(row) for row in rows]
    return verdict.folded(health.of_all({}, seen, is_running=is_running))


def _seen(row: QueueRow) -> health.Queue:
    pause = row["paused"]
    return health.Queue(
        name=row["name"],
        admin=row["admin"],
        wish="" if pause is None else waits.pause_of_view(pause),
        counts=row["counts"],
        detail=row if row["answers"] else None,
        child=row.get("child", {}),
        silence=row["reason"] or "",
    )


def trouble(status: SupervisorStatus, rows: Sequence[QueueRow]) -> list[TroubleView]:
    """Return what keeps helpers or queues from their work, the worst first; not what has
    failed, and what a person wants: the page about them says that itself."""
    every = list(health.of_helpers(status))
    for row in rows:
        every.extend(queue_trouble(row))
    return [item.to_json() for item in verdict.folded(every)]


def queue_trouble(row: QueueRow) -> Iterator[Trouble]:
    """Give what is wrong with a queue, by its row."""
    name = row["name"]
    if row["answers"]:
        return health.of_queue(name, row)
    return health.of_silent(name, row["admin"], row["child"], row["reason"] or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The root's file system."""

    kind: str
    mount: str
    device: str
    options: Sequence[str]
    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    room_messages: int
    promise: str
    warnings: Sequence[str]


class Disk:
    """Facts of the root's file system, looked at again every few seconds."""

    def __init__(self) -> None:
        self._latest: DiskFacts | None = None
        self._until = 0.0

    async def facts(self, root: Root) -> DiskFacts:
        if self._latest is None or time.monotonic() >= self._until:
            self._latest = await asyncio.to_thread(_disk_facts, root)
            self._until = time.monotonic() + _DISK_FOR
        return self._latest


def _disk_facts(root: Root) -> DiskFacts:
    described = disk.describe(root.path)
    room = os.statvfs(root.path)
    return DiskFacts(
        kind=described.kind,
        mount=described.mount,
        device=described.device,
        options=list(described.options),
        free_bytes=described.free_bytes,
        total_bytes=room.f_blocks * room.f_frsize,
        free_inodes=described.free_inodes,
        room_messages=described.room_messages,
        promise=described.promise,
        warnings=list(described.warnings),
    )
