"""Takes deposits from new/, one look at a time, beside the turns of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rq.errors import RQError
from rq.queues.concurrency import Tasks, Wakeup
from rq.queues.owner.health import Health
from rq.spool import door

log = logging.getLogger(__name__)


class Deposits:
    """Accepts what programs have renamed into `new/`."""

    def __init__(
        self, keeper: door.Keeper, health: Health, wakeup: Wakeup, tasks: Tasks
    ) -> None:
        """`tasks`: no others than the looks."""
        self._keeper = keeper
        self._health = health
        self._wakeup = wakeup
        self._tasks = tasks
        self._again = False  # a look was asked for while one was going on

    def look(self) -> None:
        """Begin to look, or look once more when the look that goes on has ended."""
        if self._tasks:
            self._again = True
        elif self._keeper.is_open():
            self._tasks.spawn(self._look())

    @property
    def is_busy(self) -> bool:
        """Whether new/ is being looked at, or holds what has to be looked at again."""
        return bool(self._tasks or self._health.deposits)

    async def rest(self, seconds: float | None = None) -> None:
        """Wait for the end of a look that goes on, or for `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tasks.ended()

    async def _look(self) -> None:
        try:
            await self._let_in()
        except (OSError, RQError) as error:
            log.error("new/ cannot be looked at: %s; RQ tries again", error)

    async def _let_in(self) -> None:
        more = True
        while more and self._keeper.is_open():
            self._again = False
            look = await door.adopt(self._keeper, self._health.deposits)
            self._health.deposits = look.left
            more = look.taken > 0 or self._again
            self._wakeup.ask()
