"""The control socket of a queue: many connections, each request guarded.

A reply leaves only after everything that was fired before it is durable; so does an
answer to a question. While the disk does not take writes, only the verbs that change
nothing and look at no message are answered.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from rq import wire
from rq.access import sockets
from rq.access.crowd import Crowd, Those
from rq.access.roles import Role
from rq.config.admin import Admin
from rq.errors import Refused, RQError, not_done
from rq.proc.listening import Listener
from rq.queues.control.commands import COMMANDS
from rq.queues.control.connection import Connection, Slot, turn_away
from rq.queues.control.verbs import Command, Context
from rq.queues.owner import Owner
from rq.spool.store import LAG_BYTES, LAG_MESSAGES

CONNECTIONS = 1000
FRAME_SECONDS = 30.0  # from the first byte of a frame to its last
TAKE_SECONDS = 60.0  # that an asker may take nothing of a reply
MUCH = 1024 * 1024  # bytes of replies of one asker, from which on all are counted
UNTAKEN = 256 * 1024 * 1024  # bytes of replies that all askers may leave untaken
UNKNOWN_SECONDS = 30.0  # how long a reply waits for a disk that fails

log = logging.getLogger(__name__)


class Server:
    """Answers for one queue."""

    def __init__(
        self,
        owner: Owner,
        sock: socket.socket,
        context: Callable[[Connection], Context],
        on_minder_gone: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._context = context
        self._on_minder_gone = on_minder_gone
        group = owner.main.admin_group
        self._policy = sockets.policy(sockets.QUEUE_OTHERS, group)
        self._connections: set[Connection] = set()
        self._contexts: dict[Connection, Context] = {}
        self._requested = 0.0
        self._ready: list[tuple[Slot, bytes]] = []  # replies that wait for the commit
        self._paced: deque[Connection] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stalled_since: float | None = None
        self._crowd = Crowd(CONNECTIONS)
        self._listener = Listener(sock, owner.loop, self._welcome)

    @property
    def minded(self) -> bool:
        """Whether somebody holds a connection as our parent."""
        return any(one.minded for one in self._connections)

    # ---- connections

    def _welcome(self, sock: socket.socket) -> None:
        """Serve a connection, if the kernel says whose it is."""
        try:
            asker = self._policy.asker(sock)
        except RQError as error:
            turn_away(sock, str(error))
            return
        one = Connection(sock, asker, self._owner.loop, self._request, self._closed)
        self._connections.add(one)
        self._contexts[one] = self._context(one)
        self._crowd.add(asker)
        if (excess := self._crowd.excess(asker)) is not None:
            self._make_room(one, *excess)

    def _make_room(self, newest: Connection, most: int, whose: Those) -> None:
        """Hang up on whoever of those has asked nothing for longest, on others before
        RQ's own; if all wait for answers, on the newest."""
        ones = self._connections - {newest}
        idle = [one for one in ones if one.idle and whose(one.asker)]
        victim = min(idle, key=lambda one: (one.asker.is_own, one.used), default=newest)
        victim.refuse(f"too many connections ({most})")

    def _closed(self, one: Connection) -> None:
        self._connections.discard(one)
        self._contexts.pop(one, None)
        self._crowd.remove(one.asker)
        if one.minded and not self.minded:
            self._on_minder_gone()

    def drop_silent(self) -> None:
        """Hang up on those that began a frame and do not end it, or take no replies."""
        now = time.monotonic()
        for one in list(self._connections):
            if one.partial_since and now - one.partial_since > FRAME_SECONDS:
                one.refuse("the rest of the request did not come in time")
            elif one.owed and now - one.taken > TAKE_SECONDS:
                one.close()

    # ---- requests

    def _request(self, one: Connection, payload: bytes) -> None:
        self._requested = time.monotonic()
        slot = one.slot()
        word, arg = wire.split_request(payload)
        command = COMMANDS.get(word)
        if command is None:
            self._reply(slot, ["ERROR"])
            return
        try:
            one.asker.check(word, command.role, command.own)
        except Refused as error:
            self._reply(slot, ["fail", str(error)])
            return
        refusal = self._refusal(command)
        if refusal is not None:
            self._reply(
                slot, ["fail", refusal], at_once=self._stalled_since is not None
            )
            return
        self._run(slot, command, self._contexts[one], arg)
        if command.creates:
            self._pace(one)
        if self._owner.spool.journal.full:
            self._owner.wake()
            one.pause()
            self._paced.append(one)

    def _refusal(self, command: Command) -> str | None:
        if command.always:
            return None
        if self._owner.admission.admin is Admin.DOWN and not command.down:
            return "status: DOWN"
        if self._owner.admission.restored and command.role is not Role.VIEWER:
            return self._owner.admission.restored
        if self._stalled_since is not None:
            return f"the journal cannot be written: {self._owner.spool.journal.failed}"
        return None

    def _run(self, slot: Slot, command: Command, context: Context, arg: bytes) -> None:
        try:
            reply = command.handler(context, arg)
        except RQError as error:
            reply = ["fail", str(error)]
        except OSError as error:
            reply = ["fail", _not_done(error)]
        except Exception:
            log.exception("a command failed: %s", command.handler.__name__)
            reply = ["fail", "the command failed; the log of the queue says why"]
        if inspect.isawaitable(reply):
            slot.connection.hold()
            task = self._owner.loop.create_task(self._later(slot, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._reply(slot, reply, at_once=command.always)

    async def _later(self, slot: Slot, coming: Awaitable[Any]) -> None:
        try:
            reply = await coming
        except RQError as error:
            reply = ["fail", str(error)]
        except OSError as error:
            reply = ["fail", _not_done(error)]
        except Exception:
            log.exception("a command failed")
            reply = ["fail", "the command failed; the log of the queue says why"]
        self._reply(slot, reply)
        slot.connection.release()

    def _reply(self, slot: Slot, reply: Any, at_once: bool = False) -> None:
        data = _encoded(reply)
        slot.connection.owed += len(data)
        if at_once and self._stalled_since is not None:
            slot.data = data
            slot.connection.send_ready()
            return
        # The slot gets its data at the flush, not before: a connection sends whatever
        # its first slots hold as soon as its socket takes it.
        self._ready.append((slot, data))
        self._owner.wake()

    # ---- replies

    def flush(self) -> None:
        """Send what waited for the commit that has just succeeded."""
        self._stalled_since = None
        ready, self._ready = self._ready, []
        for slot, data in ready:
            slot.data = data
        much = False
        for slot, _ in ready:
            slot.connection.send_ready()
            much = much or slot.connection.owed > MUCH
        if much:
            self._relieve()

    def _relieve(self) -> None:
        """Hang up on those who take no replies, when all that they leave is too much
        memory: the most first, and others before RQ's own."""
        untaken = sum(one.owed for one in self._connections)
        for one in sorted(
            self._connections,
            key=lambda one: (not one.asker.is_own, one.owed),
            reverse=True,
        ):
            if untaken <= UNTAKEN:
                return
            untaken -= one.owed
            one.close()

    @property
    def owes(self) -> bool:
        """Whether a reply waits for a commit."""
        return bool(self._ready)

    def stall(self) -> None:
        """The commit failed: replies wait, and after a while say that nobody knows."""
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since = now
        if now - self._stalled_since < UNKNOWN_SECONDS:
            return
        text = f"outcome unknown: {self._owner.spool.journal.failed}"
        ready, self._ready = self._ready, []
        for slot, data in ready:
            slot.data = wire.frame(orjson.dumps(["fail", text]))
            slot.connection.owed += len(slot.data) - len(data)
            slot.connection.send_ready()

    def busy(self, quiet: float) -> bool:
        """Whether a request came in the last `quiet` seconds, and folders may wait."""
        return time.monotonic() - self._requested < quiet and not self.behind

    @property
    def behind(self) -> bool:
        """Past half of the lag that is allowed."""
        spool = self._owner.spool
        return spool.lag > LAG_MESSAGES // 2 or spool.lag_bytes > LAG_BYTES // 2

    # ---- pace

    def _pace(self, one: Connection) -> None:
        """Past half of the lag that is allowed, take requests as folders are made."""
        if self.behind:
            one.pause()
            self._paced.append(one)

    def resume(self, settled: int) -> None:
        """Let as many paced connections go on as folders were made."""
        number = len(self._paced)
        for _ in range(min(settled, number) if self.behind else number):
            self._paced.popleft().resume()

    def close(self) -> None:
        """Take no more connections and hang up."""
        self._listener.close()
        for one in list(self._connections):
            one.minded = False
            one.send_ready()
            one.close()


def _encoded(reply: Any) -> bytes:
    """Return the frame of a reply; also of one that cannot be written, for the asker
    waits for it."""
    try:
        data = orjson.dumps(reply)
    except orjson.JSONEncodeError:
        log.exception("a reply cannot be written as JSON")
        return wire.frame(b'["fail","the answer cannot be written as JSON"]')
    if len(data) > wire.REPLY_LIMIT:
        log.error("a reply of %d bytes is more than a frame may hold", len(data))
        return wire.frame(
            b'["fail","the answer has %d bytes, more than the %d that a reply may have: '
            b'ask for less"]' % (len(data), wire.REPLY_LIMIT)
        )
    return wire.frame(data)


def _not_done(error: OSError) -> str:
    log.error("a request could not be done: %s", error)
    return not_done(error)
