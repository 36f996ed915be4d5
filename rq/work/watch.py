"""Looks after what runs: renews leases, ends what may not go on, sends logs and progress.

All by the clock that counts sleep, too: an agent that was stopped or suspended sees at its
first look what has run out meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import islice

from rq.errors import RQError
from rq.logs import fields
from rq.work import holding
from rq.work.attempt import Attempt, Why
from rq.work.delivery import Delivery

LOOK = 0.1  # seconds between looks
LOGS, PROGRESS = 0.3, 1.0  # seconds between what is sent of one attempt
PATIENCE = 1.0  # seconds until what could not be handed in is kept on disk
KEPT = 10  # of these at a look: each is synced, and what runs is not to wait for them
TEXT = 1000  # characters of progress

log = logging.getLogger(__name__)


class Watch:
    """Looks after the attempts of an agent."""

    def __init__(
        self,
        held: Mapping[str, Attempt],
        delivery: Delivery,
        grace: float,
        goes_on: bool,
    ) -> None:
        """`held`: attempts by their tokens; `goes_on`: work does, when nobody renews its
        lease."""
        self._held = held
        self._delivery = delivery
        self._grace = grace
        self._goes_on = goes_on
        self._busy: dict[tuple[str, Callable[..., object]], asyncio.Task[None]] = {}
        self._next: dict[tuple[str, Callable[..., object]], float] = {}

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK)
            self.look(holding.now())

    def look(self, now: float) -> None:
        """Do what is to be done now."""
        for attempt in list(self._held.values()):
            if attempt.why is not Why.LOST:
                self._look_at(attempt, now)
        for attempt in list(islice(self._not_kept(now), KEPT)):
            self._delivery.keep(attempt)
        if len(self._next) > 3 * len(self._held) + 100:
            self._next = {k: at for k, at in self._next.items() if k[0] in self._held}

    def _look_at(self, attempt: Attempt, now: float) -> None:
        if now >= attempt.term.renew_at:
            self._do(attempt, self._renew, now, 0.0)
        if now >= attempt.term.stop_at and attempt.at_work:
            self._stop(attempt, now)
        if attempt.at_work:
            self._do(attempt, self._send_log, now, LOGS)
            if attempt.said.text != attempt.progress:
                self._do(attempt, self._show, now, PROGRESS)

    def _not_kept(self, now: float) -> Iterator[Attempt]:
        """Give attempts whose end waits for its host, and is on no disk."""
        for attempt in self._held.values():
            if attempt.closed_at is None or attempt.is_kept or attempt.why is Why.LOST:
                continue
            if now >= attempt.closed_at + PATIENCE:
                yield attempt

    def _stop(self, attempt: Attempt, now: float) -> None:
        """End work whose lease runs out; it has ended when the lease has."""
        if self._goes_on or attempt.why is Why.LINK:
            return
        left = attempt.term.ends_at - now
        log.warning(
            "nobody renews the lease of a message; its script is ended: %s",
            fields(msg_id=attempt.msg_id, seconds_left=round(left, 1)),
        )
        attempt.stop(Why.LINK, min(self._grace, left))

    def _do(
        self,
        attempt: Attempt,
        act: Callable[[Attempt], Coroutine[object, None, None]],
        now: float,
        pause: float,
    ) -> None:
        """Do something for an attempt, unless it is being done; then not before `pause`
        seconds have passed."""
        key = attempt.token, act
        if key in self._busy or now < self._next.get(key, 0.0):
            return
        if pause:
            self._next[key] = now + pause
        task = self._busy[key] = asyncio.create_task(_quietly(act(attempt)))
        task.add_done_callback(lambda _: self._busy.pop(key, None))

    async def _renew(self, attempt: Attempt) -> None:
        attempt.take(
            await self._delivery.words.renewals.ask(attempt.token), self._grace
        )

    async def _send_log(self, attempt: Attempt) -> None:
        await attempt.sender.flush()

    async def _show(self, attempt: Attempt) -> None:
        text = attempt.progress = attempt.said.text
        result = await self._delivery.service.progress(attempt.token, text[:TEXT])
        attempt.take(result, self._grace)

    async def stop(self) -> None:
        """Do nothing more."""
        for task in list(self._busy.values()):
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)


async def _quietly(work: Coroutine[object, None, None]) -> None:
    """What nobody takes is not said again: the end of the attempt shows why."""
    try:
        await work
    except RQError as error:
        log.debug("not taken: %s", error)
