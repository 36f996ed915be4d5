"""Reading messages, whoever answers for their queue: its owner, or, where nobody does and
while it is DOWN, its folders; nothing here writes."""

from __future__ import annotations

from typing import Any

from rq import client, offline
from rq.config.admin import Admin, admin_status
from rq.errors import NoSuchMessage, OutcomeUnknown, Refused, Unreachable
from rq.spool import checkpoint, folders, stopped_cleanly
from rq.states import State
from rq.web.site import Site

SILENT = "_silent"  # a field of what the folders say: why nobody else was asked
_NOBODY = (Refused, Unreachable, OutcomeUnknown)


def is_down(site: Site, name: str) -> bool:
    """Return whether somebody took a queue down: then its owner says next to nothing."""
    return admin_status(site.root, name) is Admin.DOWN


def why_silent(site: Site, name: str) -> str:
    """Return the sentence for a reader of what the folders of a queue say."""
    if is_down(site, name):
        return (
            "The queue is DOWN: nothing starts and nothing is accepted. What is shown is "
            "what its folders hold."
        )
    return (
        "Nobody answers for the queue. What is shown is what its folders hold; its "
        "journal may know more."
    )


async def message(site: Site, name: str, msg_id: str) -> dict[str, Any]:
    """Return all that is known of a message, with SILENT when its folder says it;
    NoSuchMessage when there is none."""
    try:
        told: dict[str, Any] = await site.owners.demand(
            name, "get_message", {"msg_id": msg_id}
        )
    except _NOBODY:
        return await site.pools.file(_from_disk, site, name, msg_id.removeprefix("."))
    return told


def _from_disk(site: Site, name: str, msg_id: str) -> dict[str, Any]:
    found = offline.message(site.root, name, msg_id, "nobody answers for it")
    del found["queue"]  # the address says it
    if not found["_attachments"]:
        del found["_attachments"]
    return {**found, SILENT: why_silent(site, name)}


async def state(site: Site, name: str, msg_id: str) -> str:
    """Return the state of a message as the ancestor's clients know it."""
    try:
        asked = {"msg_id": msg_id}
        return str(await site.owners.demand(name, "get_message_state", asked))
    except _NOBODY:
        queue = site.root.queue(name)
        found = await site.pools.file(folders.find, queue, msg_id)
    if found is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {name}")
    return offline.shown_state(found)


async def rows(
    site: Site, name: str, state: State, limit: int, after: str = ""
) -> list[dict[str, Any]]:
    """Return the newest messages of a state; `after`: only those older than that id."""
    asked = {"state": str(state), "limit": limit, **({"after": after} if after else {})}
    try:
        return await _told(site, name, asked)
    except _NOBODY:
        queue = site.root.queue(name)
        told = await site.pools.file(offline.rows, queue, state, limit, after)
        return [dict(row) for row in told if "due" in row]  # those that can be read


async def _told(site: Site, name: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the owner lists; an answer that ends early is asked on."""
    found: list[dict[str, Any]] = []
    while True:
        rest = {"limit": asked["limit"] - len(found)}
        if found:
            rest["after"] = found[-1]["msg_id"]
        reply = await site.owners.ask(name, "list", {**asked, **rest})
        found += client.demanded(reply)
        if not reply[2:] or not found or len(found) >= asked["limit"]:
            return found


async def counts(site: Site, name: str) -> dict[str, int]:
    """Return how many messages a queue that nobody answers for has in each state, as its
    last clean end counted them; {} when it had none: nothing is listed to be counted."""
    return await site.pools.file(_counts, site, name)


def _counts(site: Site, name: str) -> dict[str, int]:
    queue = site.root.queue(name)
    point = checkpoint.read(queue)
    if point is None or not stopped_cleanly(queue):
        return {}
    found = point.counts.to_json()
    found["errack"] = found.pop(State.DISMISSED)  # as the owner calls it
    return found
