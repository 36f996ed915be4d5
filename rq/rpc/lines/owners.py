"""Asking owners, supervisor and timers: lines that stay open and carry many requests.

Each queue has a line for each lane of the table of commands, so that looking never waits
behind what the owner slows down. What takes long, say a copy of a large file, or a wait,
goes over a line of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import orjson

from rq import names
from rq.config.crowd import Crowd
from rq.errors import Busy, NoSuchQueue, OutcomeUnknown, RQError, Unreachable
from rq.layout import Root
from rq.rpc import client, wire
from rq.rpc.lines import parked_answers
from rq.rpc.lines.commands import COMMANDS, Lane
from rq.rpc.lines.line import DEADLINE, Broken, Line, Unsent, ask_once
from rq.words.nesting import Json


class ClientGone(Exception):
    """Whoever asked has hung up, so nobody is to be answered."""


Reply: TypeAlias = Sequence[Json]  # ["ok", VALUE] or ["fail", TEXT]

_STOPS = "this process stops, and the wait with it: ask again"
LONG = 3600.0  # of what copies, syncs or reads many files


class Owners:
    """The way to every process that can be asked."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lines: dict[tuple[str, Lane], asyncio.Future[Line]] = {}
        self._crowd = Crowd(root)
        self._stopping = asyncio.Event()

    async def ask(self, queue: str, command: str, arg: object = b"") -> Reply:
        """Return the whole reply of a queue's owner, as the socket gives it.

        NoSuchQueue; Unreachable: nobody answers, nothing was asked. OutcomeUnknown: it
        was asked and the answer did not come.
        """
        reply: Reply = orjson.loads(await self.ask_raw(queue, command, arg))
        return reply

    async def ask_raw(self, queue: str, command: str, arg: object = b"") -> bytes:
        """As `ask`, but the reply as JSON text."""
        payload = command.encode() + b" " + client.encode_arg(arg)
        self._socket(queue)  # there may be no such queue
        left = parked_answers.answer(self._root, queue, command, arg)
        if left is not None:
            return orjson.dumps(left)
        try:
            if COMMANDS[command].slow:
                return await ask_once(self._socket(queue), payload, deadline=LONG)
            return await self._ask(queue, command, payload)
        except Unreachable as error:
            raise self._why_silent(queue) from error

    async def demand(self, queue: str, command: str, arg: object = b"") -> Json:
        """Return what follows `ok` in the reply; raise what follows `fail`."""
        return cast(Json, client.demanded(await self.ask(queue, command, arg)))

    async def wait(
        self,
        queue: str,
        command: str,
        arg: object,
        seconds: float,
        gone: asyncio.Event,
    ) -> Json:
        """As `demand`, of what may take so many seconds. ClientGone when `gone` is set
        before, Busy when this process stops: then the owner hears it as well, by the end
        of the line. A reply that was there already is returned all the same: the owner
        counts it as told, and who asked has to give back what it hands out."""
        payload = command.encode() + b" " + client.encode_arg(arg)
        async with self.line(queue) as line:
            answer = line.ask(payload, seconds + DEADLINE)
            events = gone, self._stopping
            left, stops = (asyncio.ensure_future(event.wait()) for event in events)
            try:
                ends = answer, left, stops
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    line.hang_up()
                if not answer.done() or (
                    answer.exception() is not None
                    and (gone.is_set() or self._stopping.is_set())
                ):
                    raise ClientGone if gone.is_set() else Busy(_STOPS)
                return cast(Json, client.demanded(orjson.loads(answer.result())))
            finally:
                left.cancel()
                stops.cancel()
                answer.cancel()  # else its failure is an error that nobody takes

    async def demand_long(self, queue: str, command: str, arg: object) -> Json:
        """As `demand`, of what reads or copies files: nobody waits behind it."""
        payload = command.encode() + b" " + client.encode_arg(arg)
        async with self.line(queue) as line:
            answer = await line.ask(payload, LONG)
        return cast(Json, client.demanded(orjson.loads(answer)))

    async def with_file(
        self, queue: str, command: str, request: object, fd: int
    ) -> Reply:
        """Ask with an open file; return the whole reply."""
        payload = command.encode() + b" " + client.encode_arg(request)
        line = Line(self._socket(queue))
        try:
            with contextlib.closing(line):
                data = await line.ask_with_file(payload, fd, LONG)
        except Unreachable as error:
            raise self._why_silent(queue) from error
        reply: Reply = orjson.loads(data)
        return reply

    @contextlib.asynccontextmanager
    async def line(self, queue: str) -> AsyncIterator[Line]:
        """Give a line for requests that others should not wait for."""
        try:
            line = await Line(self._socket(queue)).connect()
        except Unreachable as error:
            raise self._why_silent(queue) from error
        with contextlib.closing(line):
            yield line

    async def supervisor(
        self, command: str, arg: object = b"", seconds: float = DEADLINE
    ) -> Reply:
        """Return the supervisor's whole reply."""
        payload = command.encode() + b" " + client.encode_arg(arg)
        path = self._root.supervisor_socket
        data = await ask_once(path, payload, deadline=seconds)
        reply: Reply = orjson.loads(data)
        return reply

    async def timers(self, command: str = "status", about: Json = None) -> Json:
        """Return what the timers process answers after `ok`."""
        payload = orjson.dumps([command, about])
        reply = await ask_once(self._root.timers_socket, payload, wire.MAGIC2)
        value: Json = client.demanded(orjson.loads(reply))
        return value

    async def each(
        self,
        queues: Sequence[str],
        command: str,
        arg: object = b"",
        seconds: float = DEADLINE,
    ) -> list[Reply | RQError]:
        """Ask many queues at the same time; after so many seconds there is a reply or
        the RQError for each."""
        left = await asyncio.to_thread(
            parked_answers.of_many, self._root, self._crowd, queues, command, arg
        )
        others = [queue for queue in queues if queue not in left]
        answers = (self._within(seconds, self.ask(q, command, arg), q) for q in others)
        replies = dict(zip(others, await asyncio.gather(*answers), strict=True))
        return [cast(Reply, left.get(q)) or replies[q] for q in queues]

    async def _within(
        self, seconds: float, answer: Awaitable[Reply], queue: str
    ) -> Reply | RQError:
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            return OutcomeUnknown(f"queue {queue} did not answer within {seconds:g} s")
        except RQError as error:
            return error

    def end_waits(self) -> None:
        """Let nobody wait any more: this process stops."""
        self._stopping.set()

    def close(self) -> None:
        for opening in self._lines.values():
            if opening.done() and not opening.exception():
                opening.result().close()

    # ---- lines

    async def _ask(self, queue: str, command: str, payload: bytes) -> bytes:
        line = await self._line(queue, COMMANDS[command].lane)
        try:
            return await line.ask(payload, DEADLINE)
        except Unsent:  # the queue was parked since this line was used last
            pass
        except Broken:
            if not COMMANDS[command].looks:
                raise
        line = await self._line(queue, COMMANDS[command].lane)
        return await line.ask(payload, DEADLINE)

    async def _line(self, queue: str, lane: Lane) -> Line:
        """Return the open line to a queue; concurrent callers share its opening."""
        opening = self._lines.get((queue, lane))
        if opening is not None and (not opening.done() or _is_good(opening)):
            return await asyncio.shield(opening)
        if opening is not None and not opening.cancelled() and not opening.exception():
            opening.result().close()  # it may lead to an owner that was moved away
        opening = asyncio.ensure_future(Line(self._socket(queue)).connect())
        self._lines[queue, lane] = opening
        opening.add_done_callback(lambda done: self._opened((queue, lane), done))
        return await asyncio.shield(opening)

    def _opened(self, key: tuple[str, Lane], opening: asyncio.Future[Line]) -> None:
        """Take an error that nobody may have waited for, and forget what did not open:
        of names that are asked for there is no end."""
        if (opening.cancelled() or opening.exception()) and (
            self._lines.get(key) is opening
        ):
            del self._lines[key]

    def _socket(self, queue: str) -> Path:
        if not names.is_queue_name(queue):
            raise NoSuchQueue(f"there is no queue {queue!r:.80}")
        return self._root.queue(queue).socket

    def _why_silent(self, queue: str) -> RQError:
        if not self._root.queue(queue).config.is_file():
            return NoSuchQueue(f"there is no queue {queue}")
        return Unreachable(
            f"queue {queue} does not answer: its process is not running; "
            f"log/queue-{queue}.log may say why"
        )


def _is_good(opening: asyncio.Future[Line]) -> bool:
    if opening.cancelled() or opening.exception():
        return False
    line = opening.result()
    return line.is_open and line.leads_there
