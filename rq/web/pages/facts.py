"""What pages tell, gathered from owners, supervisor and timers, all at the same time.

Everything is asked for and nothing is listed to be counted: a page costs the same with
ten messages and with a million.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rq import disk, health, names
from rq.config.admin import admin_status
from rq.errors import RQError
from rq.layout import Root
from rq.web.pages import progress, sparks

if TYPE_CHECKING:
    from rq.web.site import Site

BUILT_IN = ("cleaner", "debug", "demo", "relay", "rq_router", "spark-history",
            "webhook")  # fmt: skip
UNKNOWN = "-"
_DISK_FOR = 10.0  # seconds that facts of the disk are kept
_COUNTED = ("prep", "que", "run", "done", "relayed", "err", "errack")


def queue_names(root: Root) -> list[str]:
    """Return the queues of a root: people's own first, then those that come with RQ."""
    try:
        with os.scandir(root.queues) as found:
            there = [one.name for one in found if names.is_queue_name(one.name)]
    except FileNotFoundError:
        return []
    there = [one for one in there if root.queue(one).config.is_file()]
    return sorted(there, key=lambda one: (one in BUILT_IN, one))


async def supervisor(site: Site) -> dict[str, Any]:
    """Return what the supervisor says of itself; {} when nobody answers."""
    try:
        reply = await site.owners.supervisor("status")
    except RQError:
        return {}
    return reply if isinstance(reply, dict) else {}


async def timers(site: Site) -> dict[str, Any]:
    """Return what the timers process says; `asleep` tells that nobody answers."""
    try:
        told: dict[str, Any] = await site.owners.timers()
    except RQError as error:
        return {"timers": [], "errors": {}, "asleep": str(error)}
    told["timers"].sort(key=lambda one: one["due"])
    return told


async def queues(site: Site, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each queue, whether its owner answers or not."""
    found = queue_names(site.root)
    replies = await site.owners.each(found, "detail")
    states = {one["name"]: one for one in children(facts) if one["kind"] == "queue"}
    return [
        queue_row(site, name, reply, states.get(name, {}))
        for name, reply in zip(found, replies, strict=True)
    ]


async def detail(site: Site, name: str) -> Any:
    """Return a queue's whole answer to `detail`, or the RQError why there is none."""
    [found] = await site.owners.each([name], "detail")
    return found


def children(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = facts.get("children")
    return found if isinstance(found, list) else []


def queue_row(
    site: Site, name: str, reply: Any, child: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is known of a queue from its owner's answer to `detail`."""
    if isinstance(reply, list) and len(reply) > 1 and reply[0] == "ok":
        detail: dict[str, Any] = reply[1]
        return {**detail, "name": name, "answers": True, "built_in": name in BUILT_IN}
    admin = str(admin_status(site.root, name))
    silent = child.get("state") or UNKNOWN
    return {
        "name": name,
        "answers": False,
        "built_in": name in BUILT_IN,
        "child": dict(child),
        "status": admin if admin != "UP" else silent,
        "admin": admin,
        "oper": UNKNOWN,
        "reason": child.get("reason") or _silence(reply),
        "counts": {},
        "accepting": False,
        "closed_reason": None,
        "num_workers": 0,
        "slots_used": 0,
        "running": [],
        "oldest_due_age": None,
        "next_due": None,
        "series": sparks.EMPTY,
        "uptime": None,
        "pid": child.get("pid"),
    }


def _silence(reply: Any) -> str:
    if isinstance(reply, list) and len(reply) > 1:
        return str(reply[1])
    return str(reply) if isinstance(reply, RQError) else "its owner does not answer"


def totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums that the health strip shows."""
    ages = [(row["oldest_due_age"] or 0.0, row["name"]) for row in rows]
    oldest, where = max(ages, default=(0.0, ""))
    sums = {
        state: sum(row["counts"].get(state, 0) for row in rows) for state in _COUNTED
    }
    return {
        **sums,
        "slots": sum(row["num_workers"] for row in rows),
        "slots_used": sum(row.get("slots_used", 0) for row in rows),
        "oldest_due_age": oldest,
        "oldest_in": where if oldest else "",
        "err_in": [row["name"] for row in rows if row["counts"].get("err")],
    }


def running(rows: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Return the messages that run, those that run longest first."""
    found = [
        {
            **one,
            "queue": row["name"],
            "for": max(0.0, now - one["since"]) if one.get("since") else 0.0,
            "part": progress.part_done(str(one.get("status") or "")),
        }
        for row in rows
        for one in row["running"]
    ]
    found.sort(key=lambda one: (-one["for"], one["msg_id"]))
    return found


def trouble(
    facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what a person should look at, a sentence each, worst first; not what has
    failed: the counts tell that."""
    found = list(health.of_helpers(facts))
    for row in rows:
        found.extend(queue_trouble(row))
    return [one.to_json() for one in sorted(found, key=lambda one: one.kind)]


def queue_trouble(row: Mapping[str, Any]) -> Iterator[health.Trouble]:
    """Give what is wrong with a queue, by its row."""
    name = row["name"]
    if row["answers"]:
        return health.of_queue(name, row)
    return health.of_silent(name, row["admin"], row["child"], row["reason"])


class Disk:
    """Facts of the root's file system, looked at anew every few seconds."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._until = 0.0

    async def facts(self, root: Root) -> dict[str, Any]:
        if time.monotonic() >= self._until:
            self._known = await asyncio.to_thread(_disk_facts, root)
            self._until = time.monotonic() + _DISK_FOR
        return self._known


def _disk_facts(root: Root) -> dict[str, Any]:
    found = disk.describe(root.path)
    room = os.statvfs(root.path)
    return {
        "kind": found.kind,
        "mount": found.mount,
        "device": found.device,
        "options": list(found.options),
        "free_bytes": found.free_bytes,
        "total_bytes": room.f_blocks * room.f_frsize,
        "free_inodes": found.free_inodes,
        "room_messages": found.room_messages,
        "promise": found.promise,
        "warnings": list(found.warnings),
    }
