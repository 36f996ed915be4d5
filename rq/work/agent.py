"""The agent: leases messages, lets scripts work on them, and ends when it is told to."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass

from rq.errors import NotPermitted, RQError
from rq.logs import fields
from rq.work import definition, notes
from rq.work.answers import Lease, Offer
from rq.work.attempt import Attempt, Why
from rq.work.folder import Folder
from rq.work.lease_work import LeaseWork
from rq.work.notes import Note
from rq.work.place import Place
from rq.work.service import Wanted
from rq.work.watch import Watch

WAIT = 30.0  # seconds of a long poll
FULL = 0.2  # seconds without room until cancellations are waited for
LAST = 5.0  # seconds, at most, in which what has ended is handed in at a stop
LOOK = 0.02  # seconds between looks at whether all workers have ended

_AT_WORK = "its worker works on the same attempt for another token"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an agent ends by itself, and how long it takes for that."""

    once: bool  # when nothing is due
    seconds: float | None  # after so many it leases nothing more
    grace: float  # seconds that scripts have to end, and again from TERM to KILL


class Agent:
    """An agent at work."""

    def __init__(
        self,
        place: Place,
        work: LeaseWork,
        watch: Watch,
        held: dict[str, Attempt],
        limits: Limits,
    ) -> None:
        """`held`: attempts by their tokens, which `watch` looks at, too."""
        self._place = place
        self._work = work
        self._load = work.load
        self._watch = watch
        self._held = held
        self._limits = limits
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._said = ""  # why nothing was leased

    def stop(self) -> None:
        """Lease nothing more; let scripts end, then end them."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until told to stop, or until there is an end by itself; RQError when the
        queue's host gives no leases."""
        for note in notes.take_all(self._place):
            self._begin(self._hand_in_note(note))
        watching = asyncio.create_task(self._watch.run())
        leasing = asyncio.create_task(self._lease_all())
        try:
            await self._first_of(leasing, self._limits.seconds)
            leasing.cancel()
            await asyncio.wait({leasing})
            if leasing.cancelled() or leasing.exception() is None:
                await self._first_of(asyncio.create_task(self._drained()), None)
            await self._cut_short()
        finally:
            watching.cancel()
            await self._watch.stop()
            await self._work.delivery.words.stop()
            await self._work.sweeper.ended()
        if not leasing.cancelled():
            leasing.result()

    async def _first_of(self, task: asyncio.Task[None], seconds: float | None) -> None:
        """Wait for a task, for the word to stop, or for so many seconds."""
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait(
            {task, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        stopping.cancel()

    # ---- leasing

    async def _lease_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            count = self._load.room(loop.time())
            if not count:
                await self._full()
                continue
            offer = await self._lease(count, 0.0 if self._limits.once else WAIT)
            if self._limits.once and not (offer.leases or offer.refused):
                if not self._held:
                    return
                await self._changes(1.0)

    async def _full(self) -> None:
        """Wait until there is room; hear meanwhile what is cancelled."""
        if await self._changes(FULL):
            return
        news = asyncio.create_task(self._lease(0, WAIT))
        change = asyncio.create_task(self._load.changed.wait())
        try:
            await asyncio.wait({news, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            news.cancel()
            await asyncio.wait({news})
        if not news.cancelled():
            news.result()

    async def _changes(self, seconds: float) -> bool:
        """Return whether a message ends within so many seconds."""
        self._load.changed.clear()
        try:
            await asyncio.wait_for(self._load.changed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _lease(self, count: int, wait: float) -> Offer:
        wanted = Wanted(
            count=count, wait=wait, request=uuid.uuid4().hex, busy=self._load.busy
        )
        offer = await self._work.delivery.service.lease(wanted)
        self._take(offer)
        return offer

    def _take(self, offer: Offer) -> None:
        self._check_user(offer)
        self._work.definition.follow(offer.base_url, offer.env)
        at_work = {attempt.folder.name for attempt in self._held.values()}
        for lease in offer.leases:
            if lease.folder in at_work:  # say of a queue that is a restored copy
                self._begin(self._give_back(lease.token, _AT_WORK))
                continue
            self._load.begin()  # now: the next request counts it
            self._begin(self._work_on(lease, offer.sent))
        for token, why in offer.refused.items():
            self._begin(self._give_back(token, why))
        self._cancel(offer)
        idle = offer.why if not offer.leases else ""
        if idle != self._said:
            self._said = idle
            if idle:
                log.info("no leases: %s", idle)

    def _check_user(self, offer: Offer) -> None:
        """Give all back and raise NotPermitted when the queue's scripts have a user and
        these would run as root: the config may name one while the agent works."""
        try:
            definition.check_user(offer.user, "the queue")
        except NotPermitted as error:
            for token in (*(lease.token for lease in offer.leases), *offer.refused):
                self._begin(self._give_back(token, str(error)))
            raise

    def _cancel(self, offer: Offer) -> None:
        for msg_id, why in offer.cancels.items():
            for attempt in self._held.values():
                if attempt.msg_id == msg_id:
                    log.info("cancelled: %s", fields(msg_id=msg_id, why=why))
                    attempt.stop(Why.CANCELLED, self._limits.grace)

    # ---- working

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("the agent failed over a message", exc_info=task.exception())

    async def _work_on(self, lease: Lease, sent: float) -> None:
        folder = Folder(self._place, lease.folder)
        sender = self._work.delivery.sender(lease.token, folder)
        attempt = self._held[lease.token] = Attempt(lease, sent, folder, sender)
        try:
            await self._work.work(attempt)
        finally:
            del self._held[lease.token]
            self._load.hand_in()

    async def _give_back(self, token: str, why: str) -> None:
        log.error("a message is given back: %s", fields(reason=why))
        await self._work.delivery.words.releases.ask((token, why))

    async def _hand_in_note(self, note: Note) -> None:
        log.info("an earlier end is handed in: %s", fields(folder=note.folder))
        try:
            await self._work.delivery.hand_in_note(note)
        except RQError as error:
            log.error(
                "an earlier end is not taken; it is kept for the next start: %s",
                fields(folder=note.folder, reason=error),
            )

    # ---- ending

    async def _drained(self) -> None:
        """Return when nothing is at work, and all is handed in."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _ended_within(self, seconds: float) -> bool:
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)
        return not self._tasks

    async def _cut_short(self) -> None:
        """Let scripts end, then end them; what cannot be handed in stays on disk."""
        grace = self._limits.grace
        for attempt in self._held.values():
            if not attempt.at_work:
                attempt.stop(Why.STOP, grace)
        self._work.runner.retire()
        if not await self._ended_within(grace):
            for attempt in self._held.values():
                attempt.stop(Why.STOP, min(grace, LAST))
            await self._ended_within(min(grace, LAST) + LAST)
        for task in list(self._tasks):
            task.cancel()
        await self._drained()
        until = asyncio.get_running_loop().time() + 2 * grace + LAST
        while not self._work.runner.empty and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK)
