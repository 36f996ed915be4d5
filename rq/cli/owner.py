"""Asking a queue's owner, and reading its folders when nobody answers."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rq import client
from rq.causes import story
from rq.cli import place
from rq.config import Admin, admin_status
from rq.errors import (
    BadInput,
    NoSuchMessage,
    Refused,
    RQError,
    Unreachable,
    WrongState,
)
from rq.layout import ATTACH, QueueDir, Root, folder
from rq.states import State

# How the words of a refusal tell which kind it is.
_KINDS: tuple[tuple[str, type[RQError]], ...] = (
    ("msg not found", NoSuchMessage),
    ("cannot find message", NoSuchMessage),
    ("lacking", BadInput),
    ("input missing", BadInput),
    ("not a message id", BadInput),
    ("cannot", WrongState),
    ("msg ", WrongState),
    ("a message in", WrongState),
    ("attachment name", BadInput),
    ("queue name", BadInput),
)


def ask(
    root: Root, queue: str, command: str, arg: object = b"", fds: Sequence[int] = ()
) -> Any:
    """Return the owner's whole reply; Unreachable says what to do."""
    path = place.queue_dir(root, queue).socket
    try:
        return client.ask(path, command, arg, fds)
    except Unreachable:
        raise Unreachable(_why_silent(root, queue)) from None


def demand(
    root: Root, queue: str, command: str, arg: object = b"", fds: Sequence[int] = ()
) -> Any:
    """Return what follows `ok` in the owner's reply; raise what follows `fail`."""
    reply = ask(root, queue, command, arg, fds)
    if isinstance(reply, list) and reply and reply[0] == "ok":
        return reply[1] if len(reply) > 1 else None
    text = str(reply[1]) if isinstance(reply, list) and len(reply) > 1 else str(reply)
    raise refusal(f"{queue}: {text}", text)


def refusal(shown: str, text: str) -> RQError:
    """Return the error for the text of a `fail`."""
    for start, kind in _KINDS:
        if text.startswith(start):
            return kind(shown)
    return Refused(shown)


def _why_silent(root: Root, queue: str) -> str:
    if place.is_running(root):
        return (
            f"RQ runs, but nobody answers for queue {queue}: `rq status` shows its "
            f"state, log/queue-{queue}.log says why"
        )
    return f"RQ is not running in {root.path}: run `rq up`"


class Reader:
    """Reads queues: asks the owner, or reads the folders and says so once."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._lines: dict[str, client.Connection | None] = {}
        self._said: set[str] = set()

    def close(self) -> None:
        for line in self._lines.values():
            if line is not None:
                line.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, queue: str, command: str, arg: object = b"") -> Any:
        """Return the owner's reply, None when the folders must be read instead."""
        if queue not in self._lines:
            self._lines[queue] = self._open(queue)
        line = self._lines[queue]
        if line is None:
            return None
        try:
            return line.ask(command, arg)
        except RQError:
            line.close()
            self._lines[queue] = self._open(queue)
            return self._once_more(queue, command, arg)

    def online(self, queue: str) -> bool:
        """Return whether the owner answers, without saying anything."""
        if queue not in self._lines:
            self._lines[queue] = self._open(queue)
        return self._lines[queue] is not None

    def forget(self, queue: str) -> None:
        """Let the next question look for the owner anew."""
        line = self._lines.pop(queue, None)
        if line is not None:
            line.close()

    def _once_more(self, queue: str, command: str, arg: object) -> Any:
        line = self._lines[queue]
        return None if line is None else line.ask(command, arg)

    def _open(self, queue: str) -> client.Connection | None:
        path = place.queue_dir(self.root, queue).socket
        try:
            return client.Connection(path)
        except Unreachable:
            self._tell(queue)
            return None

    def _tell(self, queue: str) -> None:
        if place.is_running(self.root):
            said = f"nobody answers for queue {queue}: read from its folders"
        else:
            said = "RQ is not running: read from the folders"
        if said not in self._said:
            self._said.add(said)
            place.note(said)

    # ---- what verbs want to know

    def status(self, queue: str) -> str:
        """Return UP, PAUSE, DOWN or SCRIPTERROR; `-` when nobody answers."""
        reply = self.answer(queue, "status")
        if reply is not None:
            return str(reply[0])
        admin = admin_status(self.root, queue)
        return "-" if admin is Admin.UP else admin.value

    def counts(self, queue: str) -> dict[str, int]:
        reply = self.answer(queue, "num_messages")
        if isinstance(reply, dict):
            return {str(k): int(v) for k, v in reply.items()}
        from rq.spool import folders

        listed = folders.count(self.root.queue(queue)).to_json()
        listed["errack"] = listed.pop(State.DISMISSED, 0)  # as the owner calls it
        return listed

    def messages(self, queue: str, state: State, limit: int) -> list[dict[str, Any]]:
        """Return the newest messages of a state, a short object each."""
        reply = self.answer(queue, "list", {"state": str(state), "limit": limit})
        if _is_ok(reply):
            return [{"queue": queue, "state": str(state), **one} for one in reply[1]]
        from rq.spool import folders

        directory = self.root.queue(queue)
        found = folders.list_state(directory, state, limit)
        views = (_short(directory, state, one) for one in found)
        return [view for view in itertools.islice(views, limit) if view]

    def state(self, queue: str, msg_id: str) -> State | None:
        """Return where a message is, None when the queue does not know it."""
        reply = self.answer(queue, "get_message_state", {"msg_id": msg_id})
        if _is_ok(reply):
            return State(reply[1])
        from rq.spool import folders

        return folders.find(self.root.queue(queue), msg_id)

    def message(self, queue: str, msg_id: str) -> dict[str, Any]:
        """Return all about a message, as the owner's get_message shows it."""
        reply = self.answer(queue, "get_message", {"msg_id": msg_id})
        if _is_ok(reply):
            return {"queue": queue, **reply[1], "attempt": _attempts(reply[1])}
        if reply is not None and "DOWN" not in str(reply):
            raise refusal(f"{queue}/{msg_id}: {reply[1]}", str(reply[1]))
        return self._from_folder(queue, msg_id)

    def _from_folder(self, queue: str, msg_id: str) -> dict[str, Any]:
        from rq.spool import folders

        directory = self.root.queue(queue)
        state = folders.find(directory, msg_id)
        if state is None:
            raise NoSuchMessage(f"there is no message {msg_id} in queue {queue}")
        message = folders.read_message(directory, state, msg_id)
        status = folders.read_status(directory, state, msg_id)
        facts = {
            **status,
            "id": msg_id,
            "count": message.count,
            "max_count": message.max_count,
            "attempt": _attempts({"attempt": message.attempt, "result": status}),
            "waiting": waiting(self.root, queue, message.due, time.time()),
        }
        text = status.get("job_status")
        return {
            "queue": queue,
            **message.to_json(),
            "path": f"queue/{queue}/{folder(state, msg_id)}",
            "state": shown_state(state),
            "status": f"{shown_state(state)} - {text}" if text else shown_state(state),
            "result": status,
            "attempt": _attempts({"attempt": message.attempt, "result": status}),
            "story": story(state, facts).to_json(),
            "_attachments": _attachments(directory, state, msg_id, message.to_json()),
        }


def waiting(root: Root, queue: str, due: float, now: float) -> str:
    """Return why a queued message has not started, while its queue is stopped."""
    admin = admin_status(root, queue)
    if admin is not Admin.UP:
        return f"The queue is {admin}, and RQ is not running."
    if due > now:
        from rq.causes import duration

        return f"It is due in {duration(due - now)}, and RQ is not running."
    return "RQ is not running; it starts with `rq up`."


def shown_state(state: State) -> str:
    """Return a state as the ancestor's tools know it."""
    return "err" if state is State.DISMISSED else str(state)


def _attachments(
    queue: QueueDir, state: State, msg_id: str, message: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is attached; the ancestor's messages do not name their digests."""
    from rq.spool import folders

    attach = queue.message(state, msg_id) / ATTACH
    named: Mapping[str, Any] = message.get("attachments", {})
    return {
        name: {
            **(named.get(name) or _digests(attach / name)),
            "path": str(attach / name),
        }
        for name in folders.attachments(queue, state, msg_id)
    }


def _digests(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        md5 = hashlib.file_digest(
            file, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()
        return {"sha256": sha256, "md5": md5, "size": file.seek(0, os.SEEK_END)}


def _short(queue: QueueDir, state: State, msg_id: str) -> dict[str, Any] | None:
    from rq.spool import folders

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
        "attempt": _attempts({"attempt": message.attempt, "result": status}),
        "status": f"{shown_state(state)} - {text}" if text else shown_state(state),
        **message.params,
    }


def _attempts(found: Mapping[str, Any]) -> int:
    """The last attempt is named in its result: `msg` is older than that."""
    last = (found.get("result") or {}).get("attempt") or 0
    return max(int(last), int(found.get("attempt") or 0))


def _is_ok(reply: Any) -> bool:
    return isinstance(reply, list) and len(reply) > 1 and reply[0] == "ok"
