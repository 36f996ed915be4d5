"""What the folders say of messages when no owner answers, in the owner's words."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rq import names
from rq.causes import story
from rq.config.admin import Admin, admin_status, needed
from rq.errors import NoSuchMessage, NotPlain, RQError
from rq.layout import ATTACH, QueueDir, Root, folder
from rq.message import SAID_BY_RQ
from rq.spool import folders, script_files
from rq.states import State
from rq.wording import duration


def message(root: Root, queue: str, msg_id: str, silent: str) -> dict[str, Any]:
    """Return all about a message, as the owner would; `silent` says why it does not."""
    directory = root.queue(queue)
    state = folders.find(directory, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {queue}")
    found = folders.read_message(directory, state, msg_id)
    status = folders.read_status(directory, state, msg_id)
    facts = {
        **status,
        "id": msg_id,
        "count": found.count,
        "max_count": found.max_count,
        "attempt": attempts({"attempt": found.attempt, "result": status}),
        "needs": needed(admin_status(root, queue), queue),
        "waiting": _waiting(root, queue, found.due, time.time(), silent),
    }
    text = status.get("job_status")
    shown = {
        "queue": queue,
        **{k: v for k, v in found.to_json().items() if k not in SAID_BY_RQ},
        "path": f"queue/{queue}/{folder(state, msg_id)}",
        "state": shown_state(state),
        "status": f"{shown_state(state)} - {text}" if text else shown_state(state),
        "result": status,
        "attempt": attempts({"attempt": found.attempt, "result": status}),
        "story": story(state, facts).to_json(),
        "_attachments": _attachments(directory, state, msg_id, found.to_json()),
    }
    return {**shown, "acknowledged": True} if state is State.DISMISSED else shown


def attempts(found: Mapping[str, Any]) -> int:
    """The last attempt is named in its result: `msg` is older than that."""
    last = (found.get("result") or {}).get("attempt") or 0
    return max(int(last), int(found.get("attempt") or 0))


def counts(queue: QueueDir) -> dict[str, int]:
    """Count the messages by listing them."""
    listed = folders.count(queue).to_json()
    listed["errack"] = listed.pop(State.DISMISSED, 0)  # as the owner calls it
    return listed


def rows(
    queue: QueueDir, state: State, limit: int, after: str = ""
) -> list[dict[str, Any]]:
    """Return the newest messages of a state, a short object each; `after`: only those
    older than that id."""
    found = folders.list_state(queue, state, limit, after)
    return [_row(queue, state, one) for one in found]


def _waiting(root: Root, queue: str, due: float, now: float, silent: str) -> str:
    """Return why a queued message has not started, while nobody owns its queue."""
    admin = admin_status(root, queue)
    if admin is Admin.DOWN:
        return "The queue is DOWN."
    if admin is not Admin.UP:
        return f"The queue is {admin}, and {silent}."
    if due > now:
        return f"It is due in {duration(due - now)}, and {silent}."
    return f"{silent[0].upper()}{silent[1:]}."


def shown_state(state: State) -> str:
    """Return a state as the ancestor's tools know it."""
    return "err" if state is State.DISMISSED else str(state)


def _attachments(
    queue: QueueDir, state: State, msg_id: str, message: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is attached; the ancestor's messages do not name their digests."""
    place = queue.message(state, msg_id)
    named: Mapping[str, Any] = message.get("attachments", {})
    found = {}
    for name in filter(names.is_attachment, folders.attachments(queue, state, msg_id)):
        with contextlib.suppress(NotPlain, FileNotFoundError):
            digests = named.get(name) or _digests(place, name)
            found[name] = {**digests, "path": str(place / ATTACH / name)}
    return found


def _digests(place: Path, name: str) -> dict[str, Any]:
    with script_files.attachment(place, name) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        md5 = hashlib.file_digest(
            file, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()
        return {"sha256": sha256, "md5": md5, "size": file.seek(0, os.SEEK_END)}


def _row(queue: QueueDir, state: State, msg_id: str) -> dict[str, Any]:
    try:
        message = folders.read_message(queue, state, msg_id)
    except (RQError, OSError):
        return {"queue": queue.name, "state": str(state), "msg_id": msg_id}
    status = folders.read_status(queue, state, msg_id)
    text = status.get("job_status")
    return {
        "queue": queue.name,
        "state": shown_state(state),
        "msg_id": msg_id,
        "due": message.due,
        "count": message.count,
        "attempt": attempts({"attempt": message.attempt, "result": status}),
        "status": f"{shown_state(state)} - {text}" if text else shown_state(state),
        **message.params,
    }
