"""Messages as their folders show them, in the form in which an owner would answer."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import cast

from rq import names
from rq.config import secrets
from rq.config.admin import Admin, admin_status, needed, pause_of
from rq.errors import NoSuchMessage, NotPlain, RQError
from rq.files import beneath
from rq.layout import ATTACH, QueueDir, Root, folder
from rq.message import next_attempt, waits
from rq.message.fields import param_text
from rq.message.filter import Filter, Traits, matches
from rq.message.message import Message
from rq.message.stories import story
from rq.message.table import NOT_SHOWN
from rq.message.waits import Reason, Why
from rq.replies import (
    AttachmentView,
    AttemptsView,
    MessageRow,
    MessageView,
    NextAttempt,
    Result,
    of_end,
)
from rq.spool import attempts_kept, folders, rows_counted, script_files
from rq.words.nesting import Json
from rq.words.states import LIVE, State
from rq.words.wording import duration

SILENT = "nobody answers for it"
_NEEDS_PROCESS = (
    "Let its queue run again (`rq status` says what is wrong); the message then starts by "
    "itself."
)


def message(root: Root, queue: str, msg_id: str, silent: str) -> MessageView:
    """Return all about a message, as the owner would; `silent` says why it does not."""
    directory = root.queue(queue)
    state = folders.find(directory, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {queue}")
    message = folders.read_message(directory, state, msg_id)
    status = folders.read_status(directory, state, msg_id)
    why = _waiting(root, queue, message, time.time(), silent)
    waiting = why.text
    facts = {
        **status,
        "id": msg_id,
        "count": message.count,
        "lost_attempts": message.lost_attempts,
        "max_count": message.max_count,
        "attempt": _attempts(message, status),
        "needs": needed(admin_status(root, queue), queue) or _NEEDS_PROCESS,
        "waiting": waiting,
        "unseen": waiting,
    }
    fields = message.to_json()
    view: dict[str, object] = {
        "queue": queue,
        **{name: fields[name] for name in fields if name not in NOT_SHOWN},
        "path": f"queue/{queue}/{folder(state, msg_id)}",
        "state": shown_state(state),
        "status": _status_line(state, status),
        "result": status,
        "attempt": _attempts(message, status),
        "story": story(state, facts).to_json(),
        "_attachments": _attachments(directory, state, msg_id, fields),
    }
    if state is State.QUE:
        view["_why"] = why.to_json()
    if state is State.DISMISSED:
        view["acknowledged"] = True
    again = _next_attempt(message, status) if state is State.QUE else None
    if again is not None:
        return cast(MessageView, {**view, "next_attempt": again})
    return cast(MessageView, view)


def attempts_of(root: Root, queue: str, msg_id: str) -> AttemptsView:
    """Return what is kept of the attempts on a message."""
    directory = root.queue(queue)
    state = folders.find(directory, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {queue}")
    with beneath.top(directory.path) as top:
        return attempts_kept.listed(folder(state, msg_id), top)


def _next_attempt(message: Message, status: Result) -> NextAttempt | None:
    return next_attempt.of(status, message.count, message.max_count, message.due)


def attempts(view: MessageView) -> int:
    """Return how often a message was started, as its owner shows it.

    The last attempt is named in its result: `msg` is older than that.
    """
    return _last_attempt(view.get("result", {}), view.get("attempt") or 0)


def _attempts(message: Message, status: Result) -> int:
    return _last_attempt(status, message.attempt)


def _last_attempt(status: Result, attempt: int) -> int:
    return max(status.get("attempt", 0), attempt)


def counts(queue: QueueDir) -> dict[str, int]:
    """Count the messages by listing them, and the rows that are still to become some."""
    listed = folders.count(queue).to_json()
    listed[State.QUE] += rows_to_come(queue)
    listed["errack"] = listed.pop(State.DISMISSED, 0)  # as the owner calls it
    return listed


def rows_to_come(queue: QueueDir) -> int:
    """Return how many rows have still to become messages; 0 where that cannot be read."""
    try:
        return rows_counted(queue)
    except (OSError, RQError):
        return 0


def rows(
    queue: QueueDir, state: State, limit: int, after: str = "", silent: str = SILENT
) -> list[MessageRow]:
    """Return the newest messages of a state, a short object each; `after`: only those
    older than that id; `silent`: why their owner does not say it."""
    ids = folders.list_state(queue, state, limit, after)
    return [_row(queue, state, msg_id, silent) for msg_id in ids]


def matching(
    queue: QueueDir, wanted: Filter, limit: int, silent: str = SILENT
) -> list[MessageRow]:
    """Return, as `rows`, the newest messages that a filter means."""
    ids = folders.newest_first(queue, wanted.state)
    meant = (msg_id for msg_id in ids if _is_meant(queue, wanted, msg_id))
    return [_row(queue, wanted.state, i, silent) for i in islice(meant, limit)]


def _is_meant(queue: QueueDir, wanted: Filter, msg_id: str) -> bool:
    try:
        message = folders.read_message(queue, wanted.state, msg_id)
    except (RQError, OSError):
        return False
    status = folders.read_status(queue, wanted.state, msg_id)
    return matches(
        wanted,
        Traits(
            msg_id=msg_id,
            src=message.src or "",
            params={name: param_text(value) for name, value in message.params.items()},
            key=message.unique_key or "",
            by=message.by or "",
            cause=status.get("cause", ""),
            text=status.get("job_status", ""),
            since=status.get("finished", names.created(msg_id)),
        ),
    )


def _waiting(root: Root, queue: str, message: Message, now: float, silent: str) -> Why:
    """Return why a message waits whose queue does not answer."""
    if admin_status(root, queue) is Admin.DOWN:
        return Why(reason=Reason.DOWN, text="The queue is DOWN.")
    if message.held is not None:
        return waits.held(message.held)
    if message.wait is not None:
        text = f"It waits for {waits.others(len(message.after))} (after), and {silent}."
        return Why(reason=Reason.AFTER, text=text, by=message.after[0])
    if (pause := pause_of(root, queue)) is not None:
        text = f"The queue is {waits.pause(**asdict(pause))}, and {silent}."
        return replace(waits.paused(**asdict(pause)), text=text)
    if message.due > now:
        text = f"It is due in {duration(message.due - now)}, and {silent}."
        return Why(reason=Reason.DUE, text=text, until=message.due)
    return Why(reason=Reason.SILENT, text=f"{silent[0].upper()}{silent[1:]}.")


def shown_state(state: State) -> str:
    """Return a state as the ancestor's tools know it."""
    return "err" if state is State.DISMISSED else str(state)


def _status_line(state: State, status: Result) -> str:
    """Return the state, and what the script last said."""
    text = status.get("job_status")
    return f"{shown_state(state)} - {text}" if text else shown_state(state)


def _attachments(
    queue: QueueDir, state: State, msg_id: str, fields: Mapping[str, Json]
) -> dict[str, AttachmentView]:
    """Return what is attached; the ancestor's messages do not name their digests."""
    place = queue.message(state, msg_id)
    kept_digests = cast(Mapping[str, AttachmentView], fields.get("attachments", {}))
    views: dict[str, AttachmentView] = {}
    for name in filter(names.is_attachment, folders.attachments(queue, state, msg_id)):
        with contextlib.suppress(NotPlain, FileNotFoundError):
            digests = kept_digests.get(name) or _digests(place, name)
            views[name] = {**digests, "path": str(place / ATTACH / name)}
    return views


def _digests(place: Path, name: str) -> AttachmentView:
    """Return the digests and the size of an attachment; its path is not yet named."""
    with script_files.attachment(place, name) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        md5 = hashlib.file_digest(
            file, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()
        size = file.seek(0, os.SEEK_END)
        return {"sha256": sha256, "md5": md5, "size": size, "path": ""}


def _row(queue: QueueDir, state: State, msg_id: str, silent: str) -> MessageRow:
    try:
        message = folders.read_message(queue, state, msg_id)
    except (RQError, OSError):
        return {"queue": queue.name, "state": str(state), "msg_id": msg_id}
    status = folders.read_status(queue, state, msg_id)
    again = _next_attempt(message, status) if state is State.QUE else None
    row: dict[str, object] = {
        "queue": queue.name,
        "state": shown_state(state),
        "msg_id": msg_id,
        "due": message.due,
        "count": message.count,
        "attempt": _attempts(message, status),
        "status": _status_line(state, status),
        **({} if again is None else {"next_attempt": again["text"]}),
        **(of_end(status) if state not in LIVE else {}),
        **secrets.dest_to_hide_by(queue.name, message.dest),
        **message.params,
    }
    if state is State.QUE:
        root = Root(queue.path.parent.parent)
        why = _waiting(root, queue.name, message, time.time(), silent)
        row["waiting"], row["why"] = why.text, why.to_json()
    return cast(MessageRow, row)
