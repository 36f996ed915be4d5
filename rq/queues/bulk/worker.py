"""Works on the bulks of a queue: one after the other, a batch at a time, until each of
their messages was looked at.

Each message that is changed has a line of its own, which names the bulk and the place in
its list: after a crash the bulk goes on behind the last of them. A message that is no
longer meant stays as it is; so does one that has failed again since it was chosen, and
these are counted: their failure is another one, which no person has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

from rq.errors import Damaged, RQError, WrongState
from rq.logs import fields
from rq.message import filter as filters
from rq.message.filter import Filter
from rq.proc.slices import in_slices
from rq.queues.bulk import actions, retry, selection
from rq.queues.bulk.actions import Deed, Hands
from rq.spool.bulk import Bulk, Chosen, Standing, drop_list, end_bulk, read_list
from rq.spool.record import More

BATCH = 1000  # messages between two looks at how far the folders are
LAG = 10_000  # folders still to be moved, beyond which the next batch waits
_PAUSE = 0.05
_REST = 1.0  # seconds until it is tried again what the machine lacked something for

log = logging.getLogger(__name__)


class Worker:
    """The one task that works on bulks, while there are some."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._owner = hands.owner
        self._spool = hands.owner.spool
        self._next: deque[Bulk] = deque()
        self._task: asyncio.Task[None] | None = None

    def go_on(self) -> None:
        """Work on the bulks that an earlier process has left open."""
        for bulk in self._spool.bulks.open_ones():
            self.add(bulk)

    def add(self, bulk: Bulk) -> None:
        """Work on a bulk when those before it have ended."""
        self._next.append(bulk)
        if self._task is None or self._task.done():
            self._task = self._owner.loop.create_task(self._work())

    def cancel(self, bulk: Bulk) -> None:
        """End a bulk; what it has changed stays so."""
        end_bulk(self._spool, bulk, Standing.CANCELLED)
        self._owner.wake()

    async def rest(self) -> None:
        """Wait until nothing is worked on: the queue stops."""
        if self._task is not None:
            await asyncio.wait([self._task])

    # ---- one bulk after the other

    async def _work(self) -> None:
        while self._next and not self._stops:
            bulk = self._next.popleft()
            try:
                await self._whole(bulk)
            except OSError as error:  # descriptors or memory are lacking
                log.error("a bulk waits: %s", fields(bulk=bulk.bulk_id, reason=error))
                self._next.appendleft(bulk)
                await asyncio.sleep(_REST)
            except RQError as error:
                await self._end(bulk, Standing.FAILED, str(error))
            except Exception as error:
                log.exception("a bulk failed: %s", fields(bulk=bulk.bulk_id))
                why = f"RQ failed over it: {error!r:.200}"
                await self._end(bulk, Standing.FAILED, why)

    @property
    def _stops(self) -> bool:
        """Whether nothing more may be changed: the queue ends, or its disk has failed."""
        admission = self._owner.admission
        return bool(admission.stopping or admission.disk_failed)

    def _goes_on(self, bulk: Bulk) -> bool:
        return bulk.is_open and not self._stops

    async def _whole(self, bulk: Bulk) -> None:
        """Work on a bulk until it ends, or the queue stops."""
        wanted, at = filters.from_json(bulk.filter), bulk.at
        with contextlib.closing(read_list(self._spool.queue, bulk, BATCH)) as lists:
            while self._goes_on(bulk) and (some := await self._listed(lists)):
                await self._batch(bulk, wanted, some, at)
                at += len(some)
        if not self._stops:
            await self._end(bulk, Standing.DONE, bulk.why)

    async def _listed(self, lists: Iterator[Sequence[Chosen]]) -> Sequence[Chosen]:
        """Return the next messages of a list; () when there are no more."""
        owner = self._owner
        looked = owner.loop.run_in_executor(owner.pools.looks, next, lists, ())
        try:
            return await looked
        except (OSError, ValueError) as error:
            raise Damaged(f"its list cannot be read: {error}") from None

    async def _end(self, bulk: Bulk, how: Standing, why: str) -> None:
        """End a bulk, unless somebody has; then its list has no more use."""
        if bulk.is_open:
            end_bulk(self._spool, bulk, how, why)
            log.info("a bulk has ended: %s", fields(**_ended(bulk)))
        await self._owner.committed()
        with contextlib.suppress(OSError):  # the next start removes it
            drop_list(self._spool.queue, bulk)

    # ---- a batch of its messages

    async def _batch(
        self, bulk: Bulk, wanted: Filter, some: Sequence[Chosen], at: int
    ) -> None:
        """Act on the messages that stand at place `at` of the list, and behind it."""
        await self._keep_pace(bulk)
        async with self._ready(bulk, [chosen.msg_id for chosen in some]) as ready:

            def act(pair: tuple[int, Chosen]) -> None:
                number, chosen = pair
                if not self._goes_on(bulk):
                    return
                msg_id = chosen.msg_id
                if msg_id in ready and selection.is_meant(self._spool, wanted, msg_id):
                    self._act(bulk, chosen, number)
                bulk.at = max(bulk.at, number + 1)

            await in_slices(enumerate(some, at), act, self._owner.wake)
        await self._owner.committed()

    async def _keep_pace(self, bulk: Bulk) -> None:
        """Wait until few enough folders are still to be moved."""
        while self._spool.lag > LAG and self._goes_on(bulk):
            await asyncio.sleep(_PAUSE)

    @contextlib.asynccontextmanager
    async def _ready(
        self, bulk: Bulk, ids: Sequence[str]
    ) -> AsyncIterator[frozenset[str]]:
        """Give the messages that can be acted on: of those that may run again nothing
        of their last attempts is left, and nobody else sends them round meanwhile."""
        state = filters.from_json(bulk.filter).state
        if not _deed(bulk).ends_attempts(state):
            yield frozenset(ids)
            return
        owner, held = self._owner, set[str]()

        def hold(msg_id: str) -> None:
            with self._left_as_it_is(bulk, msg_id):
                retry.hold(owner, msg_id)
                held.add(msg_id)

        try:
            await in_slices(ids, hold)
            left = await retry.end_last_attempts(owner, held)
            for msg_id in left:
                with self._left_as_it_is(bulk, msg_id):
                    retry.refuse_left(msg_id, left)
            yield frozenset(held) - left
        finally:
            retry.release(owner, held)

    def _act(self, bulk: Bulk, chosen: Chosen, number: int) -> None:
        """Act on a message that is meant, unless it has failed again meanwhile."""
        msg_id, failure = chosen
        if failure and failure != selection.failure(self._spool, msg_id):
            bulk.failed_again += 1
            return
        more: More = {"bulk": bulk.bulk_id, "at": number}
        if bulk.failed_again:
            more["failed_again"] = bulk.failed_again
        with self._left_as_it_is(bulk, msg_id):
            deed = _deed(bulk)
            if not self._hands.act(deed, msg_id, more):
                raise WrongState(f"msg {deed.action.already}")

    @contextlib.contextmanager
    def _left_as_it_is(self, bulk: Bulk, msg_id: str) -> Iterator[None]:
        """Go on with the next message if this one cannot be changed now, and say why."""
        try:
            yield
        except RQError as error:
            bulk.why = f"{msg_id} stays as it is: {error}"


def _deed(bulk: Bulk) -> Deed:
    return actions.deed_of_bulk(bulk.action, bulk.to, bulk.by)


def _ended(bulk: Bulk) -> dict[str, object]:
    return {
        "bulk": bulk.bulk_id,
        "action": bulk.action,
        "by": bulk.by,
        "how": bulk.standing,
        "changed": bulk.changed,
        "of": bulk.total,
        "failed_again": bulk.failed_again,
    }
