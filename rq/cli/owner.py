"""Asking a queue's owner, and reading its folders when nobody answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rq import client
from rq.cli import place
from rq.config.admin import Admin, admin_status
from rq.errors import RQError, Unreachable
from rq.layout import Root
from rq.states import State


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
    return client.demanded(reply, f"{queue}: ")


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
        """Return how many messages are in each state; `errack`: dismissed."""
        reply = self.answer(queue, "detail")  # unlike num_messages it tells all seven
        if _is_ok(reply):
            return {str(k): int(v) for k, v in reply[1]["counts"].items()}
        from rq import offline

        return offline.counts(self.root.queue(queue))

    def stuck(self, queue: str) -> str | None:
        """Return why folders of a queue cannot be made or moved, if they cannot."""
        reply = self.answer(queue, "detail")
        return reply[1].get("stuck") if _is_ok(reply) else None

    def messages(self, queue: str, state: State, limit: int) -> list[dict[str, Any]]:
        """Return the newest messages of a state, a short object each."""
        asked: dict[str, Any] = {"state": str(state), "limit": limit}
        reply = self.answer(queue, "list", asked)
        if _is_ok(reply):
            found = list(reply[1])
            while _is_ok(reply) and reply[2:] and found and len(found) < limit:
                rest = {"limit": limit - len(found), "after": found[-1]["msg_id"]}
                reply = self.answer(queue, "list", {**asked, **rest})
                found += reply[1] if _is_ok(reply) else []
            return [{"queue": queue, "state": str(state), **one} for one in found]
        from rq import offline

        return offline.rows(self.root.queue(queue), state, limit)

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
        from rq import offline

        if _is_ok(reply):
            return {"queue": queue, **reply[1], "attempt": offline.attempts(reply[1])}
        if reply is not None and "DOWN" not in str(reply):
            raise client.refusal(f"{queue}/{msg_id}: {reply[1]}", str(reply[1]))
        why = place.is_running(self.root) and "nobody answers for it"
        return offline.message(
            self.root, queue, msg_id, why or "RQ is not running; it starts with `rq up`"
        )


def _is_ok(reply: Any) -> bool:
    return isinstance(reply, list) and len(reply) > 1 and reply[0] == "ok"
