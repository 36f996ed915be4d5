"""Keeps the counts of ended messages true, whatever others do to their folders.

They are looked at after each start, before messages are removed that are beyond a number
(each hour, or as an operator asks), and on the command `check`. In between they may be
wrong, and no message is lost by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from rq.logs import fields
from rq.queues.owner.admission import Admission
from rq.spool import Spool, recount
from rq.spool.recount import Recount
from rq.words.states import COUNTED, FINAL, State

_STATES = tuple(state for state in COUNTED if state in FINAL)
_PAUSE = 0.005  # seconds between pieces: the owner has work of its own

log = logging.getLogger(__name__)

T = TypeVar("T")


class Counters:
    """The counts of one queue's ended messages."""

    def __init__(self, spool: Spool, admission: Admission, looks: Executor) -> None:
        """`looks`: the threads that list folders."""
        self._spool = spool
        self._admission = admission
        self._looks = looks
        # Of two at a time each would add the same difference.
        self._one_at_a_time = asyncio.Lock()

    async def wrong(self) -> list[Recount]:
        """Return the counts that are wrong."""
        return [recounted async for recounted in self._looked(_STATES)]

    async def correct(self, states: Sequence[State] = _STATES) -> list[Recount]:
        """Correct the counts of some states; return those that were wrong. OSError: their
        directories cannot be read now."""
        corrected = []
        async for recounted in self._looked(states):
            recount.believe(self._spool, recounted)
            corrected.append(recounted)
            log.warning(
                "others have removed or moved folders of messages; RQ goes on with those "
                "that there are: %s",
                fields(
                    state=recounted.state,
                    counted=recounted.counted,
                    there=recounted.there,
                ),
            )
        return corrected

    async def _looked(self, states: Sequence[State]) -> AsyncIterator[Recount]:
        async with self._one_at_a_time:
            for state in states:
                if self._ends:
                    return
                recounted = await recount.recount(self._spool, state, self._aside)
                if recounted.is_wrong and not self._ends:
                    yield recounted

    async def _aside(self, call: Callable[..., T], *args: object) -> T:
        await asyncio.sleep(_PAUSE)
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._looks, call, *args)

    @property
    def _ends(self) -> bool:
        """Whether nothing need be counted, or what is seen is not this queue's."""
        return bool(self._admission.stopping or self._spool.displaced)
