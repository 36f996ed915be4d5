"""Takes deposits from new/, one look at a time, beside the turns of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from rq.errors import RQError
from rq.queues.concurrency import Tasks, Wakeup
from rq.queues.owner.health import Health
from rq.spool import door

AT_REST = 2.0  # seconds after which no change of a directory shares its time
GLANCES = 12  # at a directory that is as it was, before it is listed all the same

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
        self._place = keeper.spool.queue.path / "new"
        # How it looked when nothing was in it, and how often that may be believed still.
        self._empty: tuple[int, int] | None = None
        self._glances = 0

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

    def glance(self) -> None:
        """As `look`; a directory that looks as it did when it was empty is listed only
        now and then: that takes a thread, and an idle queue does nothing else."""
        if self._glances and not self._tasks and self._stamp() == self._empty:
            self._glances -= 1
        else:
            self.look()

    def _stamp(self) -> tuple[int, int] | None:
        """Return what changes with each name that comes or goes; None: it may not tell
        the last two apart, or cannot be read."""
        try:
            info = self._place.stat()
        except OSError:
            return None
        at_rest = time.time() - info.st_ctime > AT_REST
        return (info.st_ino, info.st_ctime_ns) if at_rest else None

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
            self._again, self._empty, self._glances = False, None, 0
            before = self._stamp()
            look = await door.adopt(self._keeper, self._health.deposits)
            self._health.deposits = look.left
            more = look.taken > 0 or self._again
            if look.empty and before is not None:
                self._empty, self._glances = before, GLANCES
            self._wakeup.ask()
