"""The link to a queue's host: asked again and again until it answers.

All that an agent asks may be asked twice: leases by their request id, words by their
tokens.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rq import back_off
from rq.errors import Unreachable
from rq.kinds import PASSING
from rq.outbound.api import failure_of
from rq.outbound.exchange import Reply
from rq.outbound.host import Request

Heard = TypeVar("Heard")

FIRST, LONGEST = 0.1, 5.0  # seconds between tries

log = logging.getLogger(__name__)


class Link:
    """What an agent asks its host by."""

    def __init__(self, ask: Callable[[Request], Awaitable[Reply]], name: str) -> None:
        """`ask` raises Unreachable; `name` is for people."""
        self._ask = ask
        self._name = name
        self._said = ""  # why it is lost, as the log was told
        self._failures = 0

    @property
    def lost(self) -> bool:
        """Whether the last request was not answered."""
        return bool(self._failures)

    async def ask(self, request: Request, patience: float | None = None) -> Reply:
        """Return the answer, as soon as there is one that will not pass, whatever its
        status is. After `patience` seconds (None: never) Unreachable."""
        try:
            async with asyncio.timeout(patience):
                return await self.say(request, _as_it_came)
        except TimeoutError:
            raise Unreachable(self._said) from None

    async def say(self, request: Request, read: Callable[[Reply], Heard]) -> Heard:
        """Return what `read` makes of an answer that will not pass. Where `read` raises
        Unreachable it is none, say a page of a proxy, and the same is said again."""
        while True:
            try:
                reply = await self._ask(request)
                if not _passes(reply):
                    heard = read(reply)
                    self._is_back()
                    return heard
                why = f"{self._name}: {failure_of(reply)}"
            except Unreachable as error:
                why = str(error)
            await self._lose(why)

    async def _lose(self, why: str) -> None:
        self._failures += 1
        if why != self._said:
            self._said = why
            log.warning("%s; it is asked again, what runs goes on", why)
        wait = back_off.delay(self._failures, FIRST, LONGEST)
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    def _is_back(self) -> None:
        self._failures = 0
        if self._said:
            self._said = ""
            log.info("%s answers again", self._name)


def _as_it_came(reply: Reply) -> Reply:
    return reply


def _passes(reply: Reply) -> bool:
    return reply.status >= 400 and failure_of(reply).kind in PASSING
