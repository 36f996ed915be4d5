"""Asks a queue's owner; reads the folders of a queue that does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard, cast

from rq.cli import place, term
from rq.config import secrets
from rq.config.admin import Admin, admin_status
from rq.config.crowd import Crowd
from rq.config.secrets import Said
from rq.errors import Down, RQError, Unreachable
from rq.kinds import Kind
from rq.layout import Root
from rq.message.filter import Filter
from rq.proc import locks
from rq.replies import AttemptsView, Detail, MessageRow, MessageView
from rq.rpc import client, wire
from rq.rpc.lines import parked_answers
from rq.rpc.lines.commands import COMMANDS
from rq.words.nesting import Json
from rq.words.states import State

_IN_TURN = 1000  # messages that are listed in the order in which they run
Reply = Sequence[Json]  # "ok" or "fail", and what follows from that


def ask(
    root: Root, queue: str, command: str, arg: object = b"", fds: Sequence[int] = ()
) -> Reply:
    """Return the owner's whole reply; Unreachable says what to do."""
    path = place.queue_dir(root, queue).socket
    if (left := _left(root, queue, command, arg)) is not None:
        return left
    try:
        return cast(Reply, client.ask(path, command, arg, fds))
    except Unreachable:
        raise Unreachable(_why_silent(root, queue)) from None


def _left(root: Root, queue: str, command: str, arg: object) -> Reply | None:
    """Return what a parked queue has left as its answer; None: it is to be asked, or there
    is no supervisor, and it is stopped."""
    row = COMMANDS.get(command)
    if row is None or not row.lasts or not locks.is_locked(root.supervisor_lock):
        return None
    return cast("Reply | None", parked_answers.answer(root, queue, command, arg))


def demand(
    root: Root, queue: str, command: str, arg: object = b"", fds: Sequence[int] = ()
) -> Json:
    """Return what follows `ok` in the owner's reply; raise what follows `fail`."""
    reply = demand_all(root, queue, command, arg, fds)
    return reply[1] if len(reply) > 1 else None


def demand_all(
    root: Root, queue: str, command: str, arg: object = b"", fds: Sequence[int] = ()
) -> Sequence[Json]:
    """As `demand`, with all that the reply holds."""
    reply = ask(root, queue, command, arg, fds)
    try:
        client.demanded(reply, f"{queue}: ")
        return reply
    except Down:
        raise Down(
            f"queue {queue} is DOWN: `rq queue up {queue}` lets it work again"
        ) from None


def _why_silent(root: Root, queue: str) -> str:
    if place.is_running(root):
        return (
            f"RQ runs, but the process of queue {queue} does not answer: `rq status` "
            f"shows its state, log/queue-{queue}.log says why"
        )
    return f"RQ is not running in {root.path}: run `rq up`"


class Reader:
    """Reads queues: asks the owner, or reads the folders and says so once."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._lines: dict[str, client.Connection | None] = {}
        self._notes: set[str] = set()

    def close(self) -> None:
        for line in self._lines.values():
            if line is not None:
                line.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, queue: str, command: str, arg: object = b"") -> Reply | None:
        """Return the owner's reply, None when the folders must be read instead."""
        if (left := _left(self.root, queue, command, arg)) is not None:
            return left
        if queue not in self._lines:
            self._lines[queue] = self._open(queue)
        line = self._lines[queue]
        if line is None:
            return None
        try:
            return cast(Reply, line.ask(command, arg))
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
        """Let the next question look for the owner again."""
        line = self._lines.pop(queue, None)
        if line is not None:
            line.close()

    def _once_more(self, queue: str, command: str, arg: object) -> Reply | None:
        line = self._lines[queue]
        return None if line is None else cast(Reply, line.ask(command, arg))

    def _open(self, queue: str) -> client.Connection | None:
        path = place.queue_dir(self.root, queue).socket
        try:
            return client.Connection(path)
        except Unreachable:
            self._tell(queue)
            return None

    def _tell(self, queue: str) -> None:
        if place.is_running(self.root):
            note = f"queue {queue} does not answer: this is read from its folders"
        else:
            note = "RQ is not running: this is read from the folders"
        if note not in self._notes:
            self._notes.add(note)
            term.note(note)

    # ---- what verbs want to know

    def detail(self, queue: str) -> Detail | None:
        """Return how a queue is; None when it does not answer."""
        reply = self.answer(queue, "detail")
        return cast(Detail, reply[1]) if is_ok(reply) else None

    def details(self, queues: Sequence[str]) -> Iterator[tuple[str, Detail | None]]:
        """Give how each queue is, as `detail`; those that are parked are looked at
        together, since they may be thousands."""
        left: Mapping[str, Reply] = {}
        if locks.is_locked(self.root.supervisor_lock):
            crowd = Crowd(self.root).answers(queues, "detail")
            left = cast("Mapping[str, Reply]", crowd)
        for queue in queues:
            reply = left.get(queue)
            detail = cast(Detail, reply[1]) if is_ok(reply) else self.detail(queue)
            yield queue, detail

    def status(self, queue: str) -> str:
        """Return UP, PAUSE, DOWN or SCRIPTERROR; `-` when the queue does not answer."""
        reply = self.answer(queue, "status")
        if reply is not None:
            return str(reply[0])
        admin = admin_status(self.root, queue)
        return "-" if admin is Admin.UP else admin.value

    def counts(self, queue: str) -> dict[str, int]:
        """Return how many messages are in each state; `errack`: dismissed."""
        detail = self.detail(queue)  # unlike num_messages it tells all seven
        if detail is not None:
            return dict(detail["counts"])
        from rq.spool import offline

        return offline.counts(self.root.queue(queue))

    def rows_to_come(self, queue: str) -> int:
        """Return how many that wait are rows, which have still to become messages."""
        detail = self.detail(queue)
        if detail is not None:
            return detail.get("rows", 0)
        from rq.spool import offline

        return offline.rows_to_come(self.root.queue(queue))

    def stuck(self, queue: str) -> str | None:
        """Return why folders of a queue cannot be made or moved, if they cannot."""
        detail = self.detail(queue)
        return detail.get("stuck") if detail is not None else None

    def messages(self, queue: str, state: State, limit: int) -> list[MessageRow]:
        """Return the newest messages of a state, a short object each; of those that wait
        what runs next, in that order."""
        rows = self._listed(queue, state, limit)
        if rows is None:
            from rq.spool import offline

            silent, path = self._why_silent(queue), self.root.queue(queue)
            listed = offline.rows(path, state, limit, silent=silent)
            return self._below_admin(listed, queue)
        return [{"queue": queue, "state": str(state), **row} for row in rows]

    def matching(self, queue: str, wanted: Filter, limit: int) -> list[MessageRow]:
        """Return, as `messages`, the newest that a filter means."""
        rows = self._listed(queue, wanted.state, limit, wanted.to_json())
        if rows is None:
            from rq.spool import offline

            silent, path = self._why_silent(queue), self.root.queue(queue)
            listed = offline.matching(path, wanted, limit, silent)
            return self._below_admin(listed, queue)
        return [{"queue": queue, "state": str(wanted.state), **row} for row in rows]

    def _listed(
        self,
        queue: str,
        state: State,
        limit: int,
        wanted: Mapping[str, Json] | None = None,
    ) -> list[MessageRow] | None:
        """Return what the owner lists, None when it does not, or is parked; a long list
        comes in parts."""
        if place.is_parked(self.root, queue):
            return None
        request: dict[str, object] = {"state": str(state), "limit": limit}
        if wanted is not None:
            request["filter"] = wanted
        in_turn = state is State.QUE and limit <= _IN_TURN and wanted is None
        order = {"order": "next"} if in_turn else {}
        reply = self.answer(queue, "list", {**request, **order})
        if not is_ok(reply):
            return None
        rows = list(cast(Sequence[MessageRow], reply[1]))
        while is_ok(reply) and reply[2:] and not in_turn and rows and len(rows) < limit:
            rest = {"limit": limit - len(rows), "after": rows[-1]["msg_id"]}
            reply = self.answer(queue, "list", {**request, **rest})
            rows += cast(Sequence[MessageRow], reply[1]) if is_ok(reply) else []
        return rows

    def state(self, queue: str, msg_id: str) -> State | None:
        """Return where a message is, None when the queue does not know it."""
        reply = self.answer(queue, "get_message_state", {"msg_id": msg_id})
        if is_ok(reply):
            return State(str(reply[1]))
        from rq.spool import folders

        return folders.find(self.root.queue(queue), msg_id)

    def message(self, queue: str, msg_id: str) -> MessageView:
        """Return all about a message, as the owner's get_message shows it."""
        reply = self.answer(queue, "get_message", {"msg_id": msg_id})
        from rq.spool import offline

        if is_ok(reply):
            message = cast(MessageView, reply[1])
            attempt = offline.attempts(message)
            return {"queue": queue, **message, "attempt": attempt}
        error = wire.failure_in(reply, f"{queue}/{msg_id}: ")
        if error is not None and error.kind is not Kind.DOWN:
            raise error
        view = offline.message(self.root, queue, msg_id, self._why_silent(queue))
        return self._below_admin(view, queue)

    def _below_admin(self, value: Said, queue: str) -> Said:
        """Return what the folders say as the owner would, to the user who asks."""
        if os.geteuid() in (0, self.root.path.stat().st_uid):
            return value
        return secrets.below_admin(value, queue)

    def _why_silent(self, queue: str) -> str:
        if place.is_parked(self.root, queue):
            return "its process is parked"
        if place.is_running(self.root):
            return "its process does not answer"
        return "RQ is not running; it starts with `rq up`"

    def attempts(self, queue: str, msg_id: str) -> AttemptsView:
        """Return what is kept of the attempts on a message."""
        reply = self.answer(queue, "get_attempts", {"msg_id": msg_id})
        if is_ok(reply):
            return cast(AttemptsView, reply[1])
        from rq.spool import offline

        kept = offline.attempts_of(self.root, queue, msg_id)
        return self._below_admin(kept, queue)


def is_ok(reply: Reply | None) -> TypeGuard[Reply]:
    """Whether a request was answered with what it asked for."""
    return isinstance(reply, list) and len(reply) > 1 and reply[0] == "ok"
