"""What an agent says about its leases, each kind of word in as few requests as can be."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from rq.errors import RQError
from rq.words.nesting import Json
from rq.work.holding import Result
from rq.work.service import Service

# Seconds between requests that hand in ends: nobody waits for their answers.
PAUSE = 0.02
MOST = 100  # tokens of a request

Item = TypeVar("Item")


class Bulk(Generic[Item]):
    """Gathers words of one kind, about many tokens in one request: what is said while
    one is out goes with the next."""

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        pause: float = 0.0,
    ) -> None:
        """`send` returns a result for each item, in their order. `pause`: seconds, at
        least, from one request to the next, so that more words go along; one that is
        full does not wait."""
        self._send = send
        self._pause = pause
        self._sent_at = -math.inf  # of the loop's clock
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, item: Item) -> Result:
        """Return what became of a word; RQError when nobody will ever take it."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            # All who are about to speak in this turn of the loop go along.
            await asyncio.sleep(0)
            while self._waiting:
                await self._gather()
                count = min(MOST, len(self._waiting))
                await self._send_some([self._waiting.popleft() for _ in range(count)])
        finally:
            self._task = None

    async def _gather(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._sent_at + self._pause - loop.time()
        if left > 0 and len(self._waiting) < MOST:
            await asyncio.sleep(left)
        self._sent_at = loop.time()

    async def _send_some(
        self, words: Sequence[tuple[Item, asyncio.Future[Result]]]
    ) -> None:
        """Send words in one request; if it is refused as a whole, each in its own."""
        answers = [answer for _, answer in words]
        try:
            results = await self._send([item for item, _ in words])
            for answer, result in zip(answers, results, strict=True):
                if not answer.done():
                    answer.set_result(result)
        except RQError as error:
            if len(words) > 1:
                for word in words:
                    await self._send_some([word])
            elif not answers[0].done():
                answers[0].set_exception(error)
        finally:
            for answer in answers:
                answer.cancel()  # nothing happens to one that is done

    async def stop(self) -> None:
        """Send nothing more; who waits for an answer waits in vain."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


class Words:
    """The words of an agent."""

    def __init__(self, service: Service) -> None:
        self.starts: Bulk[str] = Bulk(service.start)
        self.renewals: Bulk[str] = Bulk(service.renew)
        self.finishes: Bulk[Mapping[str, Json]] = Bulk(service.finish, PAUSE)
        self.releases: Bulk[tuple[str, str]] = Bulk(service.release)

    async def stop(self) -> None:
        """Say nothing more."""
        for bulk in (self.starts, self.renewals, self.finishes, self.releases):
            await bulk.stop()
