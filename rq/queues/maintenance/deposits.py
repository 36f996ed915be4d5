"""Takes deposits from new/, one look at a time, beside the turns of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging

from rq.config.admin import Admin
from rq.errors import RQError
from rq.message import Message
from rq.queues.concurrency.tasks import Tasks
from rq.queues.owner.owner import Owner
from rq.spool import door

log = logging.getLogger(__name__)


class Deposits:
    """Accepts what programs have renamed into `new/`."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._tasks = Tasks(owner.loop)
        self._again = False  # somebody asked while a look was going on
        self._keeper = door.Keeper(
            owner.spool,
            owner.full_id(""),
            functools.partial(owner.loop.run_in_executor, owner.pools.looks),
            self._take,
            self._is_open,
        )

    def look(self) -> None:
        """Begin to look, or look once more when the look that goes on has ended."""
        if self._tasks:
            self._again = True
        elif self._is_open():
            self._tasks.spawn(self._look())

    async def rest(self, seconds: float | None = None) -> None:
        """Wait for the end of a look that goes on, or for `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tasks.ended()

    async def _look(self) -> None:
        try:
            await self._let_in()
        except (OSError, RQError) as error:
            log.error("the door cannot be looked at: %s; RQ tries again", error)

    async def _let_in(self) -> None:
        owner, more = self._owner, True
        while more and self._is_open():
            self._again = False
            look = await door.adopt(self._keeper, owner.health.deposits)
            owner.health.deposits = look.left
            more = look.taken > 0 or self._again
            owner.wake()

    def _take(self, message: Message) -> None:
        self._owner.backlog.add(message.msg_id, message)
        self._owner.wake()

    def _is_open(self) -> bool:
        owner = self._owner
        return (
            owner.admission.admin is not Admin.DOWN and owner.admission.closed() is None
        )
