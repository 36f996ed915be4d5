"""A thread that compares passwords, and the order of those that wait for it.

A hash takes 16 MiB and a twentieth of a second on purpose. Nothing else waits for this
thread, and it never uses more than one core.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from concurrent.futures import ThreadPoolExecutor

from rq.config import passwords
from rq.errors import TooOften

WAITING = 32  # guesses that wait at the same time

Turn = tuple[float, int, asyncio.Future[None]]


class Hashing:
    """Compares one password at a time, those of the least suspicious askers first.

    Of equals the newest is first: when more come than can be served, those who came
    last are still there to be answered.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "hashing")
        self._is_busy = False
        self._waiting: list[Turn] = []  # in the order of their turns
        self._numbers = itertools.count(0, -1)

    async def fits(self, password: str, stored: str | None, suspicion: float) -> bool:
        """Return whether a password is the stored one; TooOften when too many wait."""
        await self._turn(suspicion)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._pool, passwords.fits, password, stored
            )
        finally:
            self._next()

    async def _turn(self, suspicion: float) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        future = asyncio.get_running_loop().create_future()
        bisect.insort(self._waiting, (suspicion, next(self._numbers), future))
        if len(self._waiting) > WAITING:
            _, _, last = self._waiting.pop()
            last.set_exception(
                TooOften(
                    "Too many people sign in at the same time; try again in a moment.",
                    5.0,
                )
            )
        await future

    def _next(self) -> None:
        while self._waiting:
            _, _, future = self._waiting.pop(0)
            if not future.done():
                future.set_result(None)
                return
        self._is_busy = False

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
