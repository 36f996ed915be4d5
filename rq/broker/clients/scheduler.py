"""Long commands, run in slices so that other clients are served.

A client that has sent many commands goes on with them in slices, after the clients that
came before it. A command whose answer takes a while (a file is written, an owner is asked)
runs as a task: its client waits, and is obeyed no further, until it has the answer. The
operator can let all clients wait for some time (CLIENT PAUSE).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping

from rq.broker.clients.connection import SLICE, Connection
from rq.broker.dialects.call import BLOCKED, Blocked
from rq.logs import fields
from rq.resp import Failure, Value

log = logging.getLogger(__name__)


class Scheduler:
    """Decides which client goes on when."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: Mapping[int, Connection]
    ) -> None:
        self.is_paused = False
        self._loop = loop
        self._connections = connections
        self._waiting: OrderedDict[int, Connection] = OrderedDict()  # to go on
        self._go_on_at: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_over = False

    # ---- clients with more commands

    def resume_later(self, connection: Connection) -> None:
        """Obey more commands of a client, after those of the clients before it."""
        self._waiting[connection.number] = connection
        if self._go_on_at is None and not self._is_over:
            self._go_on_at = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._go_on_at = None
        until = time.monotonic() + SLICE
        while self._waiting and time.monotonic() < until:
            _, connection = self._waiting.popitem(last=False)
            connection.go_on()
        if self._waiting and not self._is_over:
            self._go_on_at = self._loop.call_soon(self._go_on)

    def pause(self, seconds: float) -> None:
        """Obey no client but the operator for some seconds; 0: obey them again."""
        if self._pause is not None:
            self._pause.cancel()
        self.is_paused = seconds > 0
        self._pause = self._loop.call_later(seconds, self._resume_all)

    def _resume_all(self) -> None:
        self.is_paused, self._pause = False, None
        for connection in list(self._connections.values()):
            self.resume_later(connection)

    def close(self) -> None:
        """Resume no client any more."""
        self._is_over = True
        if self._go_on_at is not None:
            self._go_on_at.cancel()

    # ---- commands that take a while

    def answer_later(
        self, connection: Connection, answer: Coroutine[None, None, Value | Blocked]
    ) -> Blocked:
        """Make a client wait for an answer, and give it then; the node will, if the answer
        is that the client waits for a job."""
        task = self._loop.create_task(self._give(connection, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return BLOCKED

    async def _give(
        self, connection: Connection, answer: Coroutine[None, None, Value | Blocked]
    ) -> None:
        try:
            value = await answer
        except Exception:  # a client must not wait for ever
            log.exception("no answer: %s", fields(of=connection.address))
            value = Failure("ERR the broker could not do it; its log tells why")
        if connection.number not in self._connections or isinstance(value, Blocked):
            return
        if connection.is_there:
            connection.answer_waiting(value)
        else:  # it hung up, which is not read yet: what the answer hands out goes back
            connection.kill()
