"""Leases messages for clients of the broker, at once or as soon as some are due."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from rq.broker.bridge import ids
from rq.broker.bridge.holdings import Holdings, Taken
from rq.broker.bridge.queues import MOST_WORDS, Asker, Queues, refusal_of
from rq.broker.dialects.call import Refusal
from rq.errors import RQError
from rq.replies import Grant
from rq.rpc.lines.owners import ClientGone

HUNG_UP = "its client hung up before it was answered"
_SURPLUS = "its client got a message of another queue"
_NO_ID = "its id cannot be told in the Redis protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client wants to get."""

    queues: Sequence[str]
    count: int = 1
    woken: int = 1  # at most, once it has waited
    seconds: float | None = None  # that it holds them; None: as their senders say
    waits: bool = False
    until: float | None = None  # on the loop's clock; None: for ever
    in_turns: bool = False  # one of each queue, and again; else all of the first one
    at_most_once: bool = False  # what is handed out is done with


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a client can still be answered. What it sent may have to be obeyed before
    the broker reads that it hung up, and then the kernel alone knows it."""

    is_there: Callable[[], bool]
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_gone(self) -> bool:
        return self.ended.is_set() or not self.is_there()


class Leases:
    """Leases messages of the queues of a root."""

    def __init__(self, queues: Queues, holdings: Holdings) -> None:
        self._queues = queues
        self._holdings = holdings
        self._waiting: Counter[str] = Counter()  # clients by queue
        self.clients = 0  # that wait

    def waiting(self, queue: str) -> int:
        """Return how many clients wait for messages of a queue."""
        return self._waiting[queue]

    async def take(
        self, asker: Asker, wanted: Wanted, client: Presence
    ) -> Sequence[Taken]:
        """Return what is due, or comes while the client waits. ClientGone: it has gone,
        and what there was is given back."""
        count = min(wanted.count, self._holdings.room(), MOST_WORDS)
        taken = await self._now(asker, wanted, count)
        if not taken and wanted.waits:
            taken = await self._later(asker, wanted, min(wanted.woken, count), client)
        if client.is_gone:
            await self._holdings.give_back(asker, taken, HUNG_UP)
            raise ClientGone
        taken = await self._with_ids(asker, taken)
        if wanted.at_most_once:
            return await self._holdings.end_at_once(asker, taken)
        return await self._holdings.begin(asker, taken, wanted.seconds)

    async def _now(self, asker: Asker, wanted: Wanted, count: int) -> Sequence[Taken]:
        """Lease what is due, no more than is wanted. A queue that cannot be asked is left
        out as long as others have something, or are waited for."""
        taken: dict[str, list[Taken]] = {queue: [] for queue in wanted.queues}
        failed: list[Refusal] = []

        async def lease(queue: str, number: int) -> bool:
            """Return whether there may be more."""
            try:
                grants = await self._queues.lease(queue, asker, number, wanted.seconds)
            except RQError as error:
                failed.append(refusal_of(queue, error))
                return False
            self._queues.learn(queue)
            taken[queue] += [Taken(queue, grant) for grant in grants]
            return len(grants) == number

        left, queues = count, list(wanted.queues)
        while queues and left:
            some = queues[:left] if wanted.in_turns else queues[:1]
            share, rest = divmod(left, len(some))
            numbers = [share + (at < rest) for at in range(len(some))]
            have_more = await asyncio.gather(*map(lease, some, numbers))
            fuller = [q for q, more in zip(some, have_more, strict=True) if more]
            queues = queues[len(some) :] + fuller
            left = count - sum(map(len, taken.values()))
        if left == count and len(failed) >= (len(taken) if wanted.waits else 1):
            raise failed[0]
        if not wanted.in_turns:
            return list(chain.from_iterable(taken.values()))
        rounds = chain.from_iterable(zip_longest(*taken.values()))
        return [each for each in rounds if each is not None]

    async def _later(
        self, asker: Asker, wanted: Wanted, count: int, client: Presence
    ) -> Sequence[Taken]:
        """Wait at all queues: the first that has something decides, and what comes from
        others at the same time is given back. The other waits are not cancelled, for the
        answer of one may be there already: they are told to end, and return that."""
        over = asyncio.Event()
        waits = {
            queue: asyncio.ensure_future(
                self._queues.wait(
                    queue, asker, count, wanted.seconds, wanted.until, over
                )
            )
            for queue in wanted.queues
        }
        left = asyncio.ensure_future(client.ended.wait())
        self._waiting.update(wanted.queues)
        self.clients += 1
        try:
            ends = {*waits.values(), left}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.set()
            left.cancel()
            self.clients -= 1
            self._waiting.subtract(wanted.queues)
            self._waiting += Counter()  # drop the zeros
        ended = await asyncio.gather(*waits.values(), return_exceptions=True)
        came = [
            Taken(queue, grant)
            for queue, grants in zip(waits, ended, strict=True)
            if not isinstance(grants, BaseException)
            for grant in grants
        ]
        if not came:
            _raise_first(dict(zip(waits, ended, strict=True)))
            return []
        first = came[0].queue
        surplus = [each for each in came if each.queue != first]
        await self._holdings.give_back(asker, surplus, _SURPLUS)
        return [each for each in came if each.queue == first]

    async def _with_ids(self, asker: Asker, taken: Sequence[Taken]) -> Sequence[Taken]:
        """Return messages without those whose ids no client could say."""
        nameless = [each for each in taken if not ids.is_sayable(each.grant["msg_id"])]
        await self._holdings.give_back(asker, nameless, _NO_ID)
        return [each for each in taken if each not in nameless] if nameless else taken


def _raise_first(ended: Mapping[str, Sequence[Grant] | BaseException]) -> None:
    """Raise why nothing came, if it was not the time that was over."""
    for queue, failure in ended.items():
        if isinstance(failure, RQError):
            raise refusal_of(queue, failure)
        if isinstance(failure, Exception):
            raise failure
