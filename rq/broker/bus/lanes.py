"""Messages of each node in their order, though some wait for the disk: large bodies of
copies are read before they are sent and written before they are taken, in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from rq.broker.cluster.messages import Copy, Mark, Message, Replicate, Yours
from rq.broker.state.body import Place
from rq.broker.store.bodies import LARGE, Bodies
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
        """Pass a message to, or of, a node on in its order."""
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
        size = _size_of(message)
        if len(lane.messages) >= MOST_MESSAGES or lane.bytes + size > MOST_BYTES:
            self._lose(node)
            return
        lane.bytes += size
        lane.messages.append(message)

    async def _empty(self, node: str) -> None:
        """Pass all in a lane on. Whatever fails, later messages are not kept behind
        those that were lost with it."""
        lane, gone = self._lanes[node], 0
        try:
            while lane.messages:
                await self._go_on_first(node, lane.messages[0])
                lane.messages.popleft()
                if lane.messages:
                    lane.bytes -= _size_of(lane.messages[0])
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
        """Pass a message on whose bodies wait for the disk; if that fails, it is lost."""
        try:
            changed = await self._change(message)
        except (OSError, Damaged) as error:
            why = cause_of(error) if isinstance(error, OSError) else error
            log.error("a copy with a large body is not sent on: %s", fields(reason=why))
            self._lossy.add(node)
        else:
            self._go_on(node, changed)


# ---- copies of jobs whose bodies lie in files


def _copies(message: Message) -> tuple[Copy, ...]:
    match message:
        case Replicate():
            return (message.copy,)
        case Yours():
            return message.copies
    return ()


def have_places(message: Message) -> bool:
    """Whether bodies have to be read before a message is sent."""
    return any(isinstance(copy.body, Place) for copy in _copies(message))


def are_large(message: Message) -> bool:
    """Whether bodies have to be written before a message is taken."""
    return any(_is_large(copy.body) for copy in _copies(message))


def _is_large(body: bytes) -> bool:
    return not isinstance(body, Place) and len(body) > LARGE


def _size_of(message: Message) -> int:
    """Return the bytes of its bodies that are in memory."""
    return sum(
        len(copy.body) for copy in _copies(message) if not isinstance(copy.body, Place)
    )


async def read_bodies(bodies: Bodies, message: Message) -> Message:
    """Return a message with its bodies. OSError, Damaged: one cannot be read."""

    def body_of(body: bytes) -> bytes:
        return bodies.read_body(body) if isinstance(body, Place) else body

    return await asyncio.to_thread(_changed, message, body_of)


async def keep_bodies(bodies: Bodies, message: Message) -> Message:
    """Return a message whose large bodies are durable, and lie in files. OSError: the
    disk takes nothing more."""

    def place_of(body: bytes) -> bytes:
        return bodies.keep_body(body) if _is_large(body) else body

    return await asyncio.to_thread(_changed, message, place_of)


def _changed(message: Message, change: Callable[[bytes], bytes]) -> Message:
    """Return a message with each body as `change` has it."""
    copies = tuple(copy._replace(body=change(copy.body)) for copy in _copies(message))
    match message:
        case Replicate():
            return message._replace(copy=copies[0])
        case Yours():
            return message._replace(copies=copies)
    return message
