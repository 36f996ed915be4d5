"""Messages of each node in their order, though some wait for the disk. Beside the loop
bodies are read before they are sent, and written before they are taken."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from rq.broker.bus import large_copies
from rq.broker.cluster.messages import Mark, Message
from rq.errors import Damaged, cause_of
from rq.logs import fields
from rq.resp import BULK_LIMIT

MOST_MESSAGES = 10_000  # that wait in a lane
MOST_BYTES = 2 * BULK_LIMIT  # of bodies that wait in it
_SLICE = 100  # messages that go on before the loop has its turn

log = logging.getLogger(__name__)


class _Lane:
    def __init__(self, message: Message) -> None:
        self.messages = deque([message])
        self.bytes = 0  # of bodies that wait behind the first


class Lanes:
    """A lane for each node with messages that wait."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waits: Callable[[Message], bool],
        change: Callable[[Message], Awaitable[Message]],
        go_on: Callable[[str, Message], None],
    ) -> None:
        """A message that `waits` goes on as `change` returns it; all others go on at
        once, unless one before them waits."""
        self.lost = 0  # messages for which there was no room
        self._loop = loop
        self._waits = waits
        self._change = change
        self._go_on = go_on
        self._lanes: dict[str, _Lane] = {}
        # Nodes with a message that was lost since their link began. A mark would say that
        # all before it has come, and what others acknowledged would be handed out again.
        self._lossy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def holds(self, node: str, message: Message) -> bool:
        """Whether a message to, or of, a node would wait here, or is lost here."""
        if node in self._lossy and isinstance(message, Mark):
            return True
        return node in self._lanes or self._waits(message)

    def put(self, node: str, message: Message) -> None:
        """Let a message to, or of, a node go on."""
        lane = self._lanes.get(node)
        if lane is not None:
            self._line_up(node, lane, message)
        elif self._waits(message):
            self._lanes[node] = _Lane(message)
            task = self._loop.create_task(self._empty(node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._pass_on(node, message)

    def _pass_on(self, node: str, message: Message) -> None:
        if not (isinstance(message, Mark) and node in self._lossy):
            self._go_on(node, message)

    def linked(self, node: str) -> None:
        """A new link begins: all is told over it from the start."""
        self._lossy.discard(node)

    def _lose(self, node: str) -> None:
        self.lost += 1
        self._lossy.add(node)

    def _line_up(self, node: str, lane: _Lane, message: Message) -> None:
        size = large_copies.size_of(message)
        if len(lane.messages) >= MOST_MESSAGES or lane.bytes + size > MOST_BYTES:
            self._lose(node)
            return
        lane.bytes += size
        lane.messages.append(message)

    async def _empty(self, node: str) -> None:
        """Let all in a lane go on. Whatever fails, later messages are not kept behind
        those that were lost with it."""
        lane, gone = self._lanes[node], 0
        try:
            while lane.messages:
                await self._go_on_first(node, lane.messages[0])
                lane.messages.popleft()
                if lane.messages:
                    lane.bytes -= large_copies.size_of(lane.messages[0])
                gone += 1
                if gone % _SLICE == 0:
                    await asyncio.sleep(0)
        finally:
            del self._lanes[node]

    async def _go_on_first(self, node: str, message: Message) -> None:
        if self._waits(message):
            await self._go_on_changed(node, message)
        else:
            self._pass_on(node, message)

    async def _go_on_changed(self, node: str, message: Message) -> None:
        """Let a message go on whose bodies wait for the disk; if that fails, it is lost."""
        try:
            changed = await self._change(message)
        except (OSError, Damaged) as error:
            why = cause_of(error) if isinstance(error, OSError) else error
            log.error("a copy with a large body is not sent on: %s", fields(reason=why))
            self._lossy.add(node)
        else:
            self._go_on(node, changed)
