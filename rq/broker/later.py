"""What takes a while: clients wait for it, and nobody else does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping

from rq.broker.backlog import Backlog
from rq.broker.connection import Connection
from rq.broker.dialects.call import BLOCKED, Blocked
from rq.logs import fields
from rq.resp import Failure, Value

log = logging.getLogger(__name__)


class Later:
    """Gives answers when they are there, and lets all wait for some time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Mapping[int, Connection],
        backlog: Backlog,
    ) -> None:
        self.is_paused = False
        self._loop = loop
        self._connections = connections
        self._backlog = backlog
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    def answer(
        self, connection: Connection, answer: Coroutine[None, None, Value | Blocked]
    ) -> Blocked:
        """Let a client wait for an answer, and give it then, unless the node will."""
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
        else:  # and its end is not read yet: what the answer hands goes to the next
            connection.kill()

    def pause(self, seconds: float) -> None:
        """Obey nobody for some seconds; 0: obey them again."""
        if self._pause is not None:
            self._pause.cancel()
        self.is_paused = seconds > 0
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self.is_paused, self._pause = False, None
        for connection in list(self._connections.values()):
            self._backlog.add(connection)
