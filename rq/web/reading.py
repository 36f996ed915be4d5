"""Reads messages from the owner of their queue or, while it is DOWN or does not answer,
from its folders; nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rq.config.admin import Admin, admin_status
from rq.errors import NoSuchMessage, RQError
from rq.kinds import PASSING
from rq.replies import AttemptsView, MessageRow, MessageView
from rq.spool import counts_at_stop, folders, offline
from rq.web import views
from rq.web.site import Site
from rq.words.states import State

NEXT = "next"  # an order of messages that wait
SILENT = "_silent"  # a field of what the folders say: why the owner was not asked
_NOBODY = PASSING  # then its folders are read: the owner has told nothing


def is_down(site: Site, name: str) -> bool:
    """Return whether an operator took a queue down: then its owner says next to nothing."""
    return admin_status(site.root, name) is Admin.DOWN


def why_silent(site: Site, name: str) -> str:
    """Return the sentence for a reader of what the folders of a queue say."""
    if is_down(site, name):
        return (
            "The queue is DOWN: nothing starts and nothing is accepted. This page shows "
            "what its folders hold."
        )
    return (
        "The queue's process does not answer. This page shows what its folders hold; "
        "the journal may be ahead of them."
    )


class Message(MessageView, total=False):
    """All that is known of a message."""

    _silent: str  # where its folder says it: why the owner was not asked


async def message(site: Site, name: str, msg_id: str) -> Message:
    """Return all that is known of a message, with SILENT when its folder says it;
    NoSuchMessage when there is none."""
    try:
        return cast(Message, await views.message(site.owners, name, msg_id))
    except RQError as error:
        if error.kind not in _NOBODY:
            raise
        return await site.pools.file(_from_disk, site, name, msg_id.removeprefix("."))


def _from_disk(site: Site, name: str, msg_id: str) -> Message:
    view: Mapping[str, object] = offline.message(
        site.root, name, msg_id, offline.SILENT
    )
    # The address says the queue.
    left_out = {"queue"} if view["_attachments"] else {"queue", "_attachments"}
    kept = {key: value for key, value in view.items() if key not in left_out}
    return cast(Message, {**kept, SILENT: why_silent(site, name)})


async def attempts(site: Site, name: str, msg_id: str) -> AttemptsView:
    """Return what is kept of the attempts on a message; NoSuchMessage when there is none."""
    try:
        return await views.attempts(site.owners, name, msg_id)
    except RQError as error:
        if error.kind not in _NOBODY:
            raise
        return await site.pools.file(offline.attempts_of, site.root, name, msg_id)


async def state(site: Site, name: str, msg_id: str) -> str:
    """Return the state of a message as the ancestor's clients know it."""
    try:
        request = {"msg_id": msg_id}
        return str(await site.owners.demand(name, "get_message_state", request))
    except RQError as error:
        if error.kind not in _NOBODY:
            raise
        queue = site.root.queue(name)
        state = await site.pools.file(folders.find, queue, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {name}")
    return offline.shown_state(state)


async def rows(
    site: Site,
    name: str,
    state: State,
    limit: int,
    after: str = "",
    order: str = "",
) -> list[MessageRow]:
    """Return the newest messages of a state; `after`: only those older than that id.
    `order` NEXT: those that run next, if nothing comes after them."""
    try:
        if order and not after:
            request = {"state": str(state), "limit": limit, "order": order}
            return (await views.rows(site.owners, name, request))[0]
        return await matching(site, name, {"state": str(state)}, limit, after)
    except RQError as error:
        if error.kind not in _NOBODY:
            raise
        queue = site.root.queue(name)
        listed = await site.pools.file(offline.rows, queue, state, limit, after)
        return [row for row in listed if "due" in row]  # those that can be read


async def matching(
    site: Site, name: str, wanted: Mapping[str, object], limit: int, after: str
) -> list[MessageRow]:
    """Return what the owner lists; where its answer ends early, it is asked to go on."""
    rows: list[MessageRow] = []
    while True:
        request = {**wanted, "limit": limit - len(rows)}
        if last := rows[-1]["msg_id"] if rows else after:
            request["after"] = last
        more, ends_early = await views.rows(site.owners, name, request)
        rows += more
        if not ends_early or not rows or len(rows) >= limit:
            return rows


async def counts(site: Site, name: str) -> dict[str, int]:
    """Return how many messages a queue without an owner has in each state, as its
    last clean end counted them; {} when it had none: nothing is listed to be counted."""
    return await site.pools.file(_counts, site, name)


async def rows_to_come(site: Site, name: str) -> int:
    """Return how many that such a queue counts as waiting are rows, not messages."""
    return await site.pools.file(offline.rows_to_come, site.root.queue(name))


def _counts(site: Site, name: str) -> dict[str, int]:
    queue = site.root.queue(name)
    stopped = counts_at_stop(queue)
    if stopped is None:
        return {}
    counts = stopped.to_json()
    counts["errack"] = counts.pop(State.DISMISSED)  # as the owner calls it
    return counts
