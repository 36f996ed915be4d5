"""The live log: what a message's script writes, sent on as it is written.

One watch looks at a file for all who view it, as long as anybody does. A viewer is a byte
offset and nothing else: what it has not taken yet stays in the file, never in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict

import orjson

from rq.config import secrets
from rq.errors import Busy, NoSuchMessage, RQError
from rq.layout import JOB, STDIO_LOG, QueueDir
from rq.proc import holes
from rq.replies import StoryView
from rq.spool import folders
from rq.web import progress, reading
from rq.web.reading import Message
from rq.web.site import Site

MOST_VIEWERS = 1000
MOST_OF_ONE = 750  # of these; one user must not take all
_LOOK_EVERY = 2.0  # seconds between checks that a viewer may still read
LOOK = 0.1  # seconds between looks at a file
ASK = 1.0  # seconds between questions to the owner, and looks for the file's name
CHUNK = 64 * 1024  # bytes of a file in one event
BEHIND = 8 * 1024 * 1024  # bytes; a viewer that lags more jumps to the end
HEARTBEAT = 15.0  # seconds of silence, after which a comment is sent
STUCK = 60.0  # seconds for one event; a viewer that takes longer is dropped
_FINAL = frozenset({"done", "relayed", "err"})
_KEPT = 4  # encoded chunks: viewers that keep up are all at the same byte

log = logging.getLogger(__name__)


# ---- the events of a log, as they are sent


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event, encoded once for all."""

    data: bytes

    def serialize(self, _handler: object = None) -> bytes:
        """Falcon asks for the bytes by this name."""
        return self.data


def event(kind: str, value: object, at: int | None = None) -> Event:
    """Return an event; a viewer that reconnects goes on at byte `at`."""
    mark = b"" if at is None else f"id: {at}\n".encode()
    body = orjson.dumps(value)
    return Event(mark + b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n")


PING = Event(b": still here\n\n")
HELLO = Event(b"retry: 1500\n\n")


class LogState(TypedDict):
    """What a viewer of the log wants to know of its message."""

    state: str
    text: str
    part: float | None  # that is done, from 0 to 1, if its script says so
    attempt: int
    story: StoryView


def state_of(message: Message) -> LogState:
    """Return what a viewer of the log wants to know of its message."""
    text = str(message["result"].get("job_status") or "")
    return {
        "state": message["state"],
        "text": text,
        "part": progress.part_done(text) if message["state"] == "run" else None,
        "attempt": message.get("attempt", 0),
        "story": message["story"],
    }


def unfinished(data: bytes) -> int:
    """Return how many bytes at the end begin a character of UTF-8 and do not end it.

    >>> [unfinished(b) for b in (b"a", "ü".encode(), "ü".encode()[:1], b"\\xff")]
    [0, 0, 1, 0]
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character: look for its first byte
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if back < need and byte < 0xF8 else 0
    return 0


def line_start(piece: bytes) -> int:
    """Return at which byte of a piece of a log, which may begin anywhere, a view begins.

    With the first whole line; in a line that has no end there, where it is written over
    first; else with the first whole character. So the bytes before can be loaded later
    and nothing is shown twice, or cut in two. static/js/pieces.js has the same rule.

    >>> [line_start(b) for b in (b"ne\\nnext\\n", b"10 %\\r20 %\\n", b"\\xbcber", b"\\r\\n")]
    [3, 5, 1, 0]
    """
    newline = piece.find(b"\n", 0, len(piece) - 1)
    if newline >= 0:
        return newline + 1
    over = piece.find(b"\r", 0, len(piece) - 1)
    if over >= 0 and piece[over + 1] != 10:
        return over + 1
    inside = (at for at, byte in enumerate(piece[:3]) if byte & 0xC0 != 0x80)
    return next(inside, min(3, len(piece)))


# ---- one log, looked at


@dataclass(eq=False, slots=True)
class Viewer:
    """A client that follows a log: its position, and since when it takes an event."""

    offset: int
    patient: bool = False  # reads from where it asked for, however far behind
    who: str = ""  # by whose login or name
    stands: Callable[[], bool] = lambda: True  # whether they may still read
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Any] | None = None
    sending_since: float | None = None


class Watch:
    """Looks at one message's log while anybody views it."""

    def __init__(self, site: Site, queue: str, msg_id: str) -> None:
        self._site = site
        self._queue: QueueDir = site.root.queue(queue)
        self._msg_id = msg_id
        self.viewers: set[Viewer] = set()
        self.size = 0  # bytes that may be sent
        self.file_number = 0  # goes up when the file is another one
        self.state: Event | None = None
        self.state_number = 0
        self.final = False
        self.lost = ""  # why there is nothing to follow any more
        self.ready = asyncio.Event()  # looked once
        self._sent_state: LogState | None = None
        self._fd: int | None = None
        self._path = ""  # by which the file was opened
        self._chunks: dict[int, tuple[int, Event]] = {}
        self._task: asyncio.Task[None] | None = None

    # ---- viewers

    def join(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def leave(self, viewer: Viewer) -> None:
        self.viewers.discard(viewer)
        if not self.viewers and self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        for viewer in self.viewers:
            viewer.woken.set()

    async def events(
        self, viewer: Viewer, closing: Callable[[], bool]
    ) -> AsyncIterator[Event]:
        """Give what a viewer has not seen, as it comes, until all has ended."""
        await self.ready.wait()
        viewer.offset -= self._inside(viewer.offset)
        seen_file, seen_state = self.file_number, 0
        while not closing():
            viewer.woken.clear()
            if seen_file != self.file_number or viewer.offset > self.size:
                seen_file, viewer.offset = self.file_number, 0
                yield event("reset", {}, 0)
            if seen_state != self.state_number and self.state is not None:
                seen_state = self.state_number
                yield self.state
            if viewer.offset < self.size:
                yield await self._next(viewer)
                await asyncio.sleep(
                    0
                )  # a viewer that is behind must not hold up the others
                continue
            if self.final or self.lost:
                yield event(
                    "end", {"lost": self.lost, "size": self.size}, viewer.offset
                )
                return
            if not await _woken(viewer):
                yield PING
        yield event("bye", {}, viewer.offset)

    async def _next(self, viewer: Viewer) -> Event:
        behind = self.size - viewer.offset
        far = behind > BEHIND and not viewer.patient
        target = self._data_from(self.size - CHUNK if far else viewer.offset)
        if far and target == self.size - CHUNK:
            target -= self._inside(target)
        if target > viewer.offset:
            start, viewer.offset = viewer.offset, target
            return event("skip", {"at": start, "to": target}, target)
        chunk = self._chunks.get(viewer.offset)
        if chunk is None:
            chunk = await self._read(viewer.offset, behind > 2 * CHUNK)
        viewer.offset = chunk[0]
        return chunk[1]

    def _inside(self, offset: int) -> int:
        """Return how many bytes before `offset` its character has begun: a client may ask
        for any, and half a character is none."""
        if self._fd is None or not 0 < offset < self.size:
            return 0
        begin = max(0, offset - 3)
        return unfinished(os.pread(self._fd, offset - begin, begin))

    def _data_from(self, offset: int) -> int:
        """Return where there is something to read: the middle of a log with `log_bytes`
        is a hole."""
        if self._fd is None:
            return offset
        return min(self.size, holes.next_data(self._fd, offset))

    async def _read(self, offset: int, far: bool) -> tuple[int, Event]:
        """Return a chunk and where it ends; what is far behind may be on a slow disk."""
        length = min(CHUNK, self.size - offset)
        if self._fd is None:
            return self.size, PING
        if far:
            data = await self._site.pools.file(os.pread, self._fd, length, offset)
        else:
            data = os.pread(self._fd, length, offset)
        if offset + len(data) < self.size:
            data = data[: len(data) - unfinished(data)] or data
        end = offset + len(data) if data else self.size
        text = data.decode("utf-8", "replace")
        chunk = end, event("log", {"at": offset, "to": end, "text": text}, end)
        if not far:
            while len(self._chunks) >= _KEPT:
                del self._chunks[next(iter(self._chunks))]
            self._chunks[offset] = chunk
        return chunk

    # ---- looking

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        ask_at = 0.0
        try:
            while True:
                now = loop.time()
                try:
                    if now >= ask_at or self._moved():
                        ask_at = now + ASK
                        self._open()
                        await self._ask_owner()
                    if self._look() or not self.ready.is_set():
                        self.ready.set()
                        self.wake()
                except Exception:
                    log.exception("looking at the log of %s failed", self._msg_id)
                self._drop_stuck(now)
                await asyncio.sleep(LOOK)
        finally:
            self._close()

    def _look(self) -> bool:
        """Take note of new bytes; a character that is still being written waits."""
        if self._fd is None:
            return False
        size = os.fstat(self._fd).st_size
        if size < self.size:
            self._other_file()
        if size == self.size:
            return False
        if not self.final:
            size -= unfinished(os.pread(self._fd, 4, max(0, size - 4)))
        grew, self.size = size != self.size, size
        return grew

    def _moved(self) -> bool:
        """Return whether the file is no longer where it was: its message went on."""
        moved = bool(self._path) and not os.path.lexists(self._path)
        if moved:
            self._path = ""  # asked once; the next look by the clock finds the rest
        return moved

    def _open(self) -> None:
        """Find the file by its name: after a crash it may be another one."""
        state = folders.find(self._queue, self._msg_id)
        if state is None:
            return
        inner = f"{JOB}/{STDIO_LOG}"
        file = folders.file_of(self._queue, state, self._msg_id, inner)
        try:
            fd = file.open()
        except OSError:
            return  # not yet run, or on its way to another directory
        self._path = f"{self._queue.path}/{file.path}"
        if self._fd is not None and os.path.samestat(os.fstat(fd), os.fstat(self._fd)):
            os.close(fd)
            return
        if self._fd is not None:
            self._other_file()
        self._close()
        self._fd = fd

    def _other_file(self) -> None:
        self.file_number += 1
        self.size = 0
        self._chunks.clear()

    async def _ask_owner(self) -> None:
        try:
            message = await reading.message(self._site, self._queue.name, self._msg_id)
        except NoSuchMessage as error:
            self.lost = str(error)
            self.wake()
            return
        except RQError:
            return  # the message cannot be read now; its log can
        # All viewers get the same events, admins too.
        state = state_of(secrets.below_admin(message, self._queue.name))
        final = state["state"] in _FINAL
        if final and not self.final:
            self._open()
            self.final = True
        self.final = final
        if state != self._sent_state:
            self._sent_state, self.state = state, event("state", state)
            self.state_number += 1
            self._look()
            self.wake()

    def _drop_stuck(self, now: float) -> None:
        for viewer in self.viewers:
            since = viewer.sending_since
            if since is not None and now - since > STUCK and viewer.task is not None:
                viewer.task.cancel()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


async def _woken(viewer: Viewer) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEARTBEAT):
            await viewer.woken.wait()
            return True
    return False


# ---- all watches


class Hub:
    """All watches of this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watches: dict[tuple[str, str], Watch] = {}
        self.closing = False

    @property
    def viewers(self) -> list[Viewer]:
        return [viewer for watch in self._watches.values() for viewer in watch.viewers]

    def follow(self, queue: str, msg_id: str, viewer: Viewer) -> AsyncIterator[Event]:
        """Return the events for a new viewer, from its offset on."""
        there = self.viewers
        theirs = sum(other.who == viewer.who for other in there)
        if len(there) >= MOST_VIEWERS or theirs >= MOST_OF_ONE:
            raise Busy(
                f"{len(there)} viewers follow logs already, {theirs} of them yours: "
                "close some and try again"
            )
        return self._events((queue, msg_id), viewer)

    async def _events(
        self, key: tuple[str, str], viewer: Viewer
    ) -> AsyncIterator[Event]:
        # Begins with the first event: HEAD, and a client that has gone, take none.
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = Watch(self._site, *key)
        viewer.task = asyncio.current_task()
        watch.join(viewer)
        try:
            yield HELLO
            look_at = _now() + _LOOK_EVERY
            async for event in watch.events(viewer, lambda: self.closing):
                viewer.sending_since = now = _now()
                if now >= look_at:
                    look_at = now + _LOOK_EVERY
                    if not viewer.stands():
                        return  # their token or session has ended meanwhile
                yield event
                viewer.sending_since = None
        finally:
            watch.leave(viewer)
            if not watch.viewers and self._watches.get(key) is watch:
                del self._watches[key]

    def close(self) -> None:
        """End all streams; browsers reconnect by themselves, to the next process."""
        self.closing = True
        for watch in self._watches.values():
            watch.wake()


def _now() -> float:
    return asyncio.get_running_loop().time()
