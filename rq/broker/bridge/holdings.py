"""What clients of the broker hold of RQ's queues: begun, gone on with, ended, given back."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rq.broker.bridge import ids
from rq.broker.bridge.body import LEASE_SECONDS
from rq.broker.bridge.queues import (
    MOST_WORDS,
    Asker,
    Queues,
    refusal,
    refusal_of,
)
from rq.broker.dialects.call import Refusal
from rq.errors import RQError
from rq.kinds import Kind
from rq.logs import fields
from rq.message.fields import is_whole
from rq.replies import Grant
from rq.words.nesting import Json
from rq.work.holding import Result

LONGEST = 86_400  # seconds of a lease
NO_JOB = "NOJOB Job not known in the context of this node."
DONE: Mapping[str, Json] = {"word": "done"}
AGAIN: Mapping[str, Json] = {"word": "resend", "delay": 0, "text": "NACK"}

T = TypeVar("T")

log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A message that was leased for a client."""

    queue: str
    grant: Grant


# ---- the tokens of what clients hold, by what they call it


MOST = 100_000  # that are held at a time
_GRACE = 60.0  # seconds that a lease may last longer, by what its queue could not hear
_FEW = 64  # dead entries of the heap that may stay
Key = tuple[str, int, str]  # of a user, the digest of a queue, and a message


class Held(NamedTuple):
    """A message that a client has."""

    token: str
    queue: str
    until: float  # seconds of the loop's clock


class Tokens:
    """What the clients of a broker hold, for as long as their leases may last."""

    def __init__(self) -> None:
        self._held: dict[Key, Held] = {}
        self._ends: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        return len(self._held)

    def room(self, now: float) -> int:
        """Return how many more there may be; forget those that are over."""
        while self._ends and self._ends[0][0] <= now:
            _, key = heapq.heappop(self._ends)
            held = self._held.get(key)
            if held is None:
                continue
            if held.until + _GRACE <= now:
                del self._held[key]
            else:
                heapq.heappush(self._ends, (held.until + _GRACE, key))
        return MOST - len(self._held)

    def keep(self, key: Key, held: Held) -> None:
        """Take in a message that a client has, or has for longer now."""
        is_new = key not in self._held
        self._held[key] = held
        if len(self._ends) > 2 * len(self._held) + _FEW:
            self._ends = [
                (each.until + _GRACE, key) for key, each in self._held.items()
            ]
            heapq.heapify(self._ends)
        elif is_new:
            heapq.heappush(self._ends, (held.until + _GRACE, key))

    def of(self, key: Key) -> Held | None:
        """Return what a client holds."""
        return self._held.get(key)

    def drop(self, key: Key) -> None:
        """Forget a message that no client holds any more."""
        self._held.pop(key, None)


def key_of(asker: Asker, queue: str, msg_id: str) -> Key:
    """Return by what a message of a client is known."""
    return asker.user, ids.digest(queue), msg_id


class Holdings:
    """What all clients of a broker hold."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._tokens = Tokens()

    def room(self) -> int:
        """Return how many messages more may be held; Refusal when there are too many."""
        room = self._tokens.room(asyncio.get_running_loop().time())
        if room <= 0:
            raise Refusal(f"ERR {MOST} messages are held: acknowledge some first")
        return room

    async def begin(
        self, asker: Asker, taken: Sequence[Taken], seconds: float | None
    ) -> Sequence[Taken]:
        """Confirm leases, for as long as they were asked for, or `seconds` being None, as
        their producers have wanted; return those that are out now."""
        groups: dict[tuple[str, float | None], list[Taken]] = defaultdict(list)
        for each in taken:
            own = _own_seconds(each.grant) if seconds is None else None
            groups[each.queue, own].append(each)
        begun: set[str] = set()

        async def confirm(queue: str, own: float | None, some: list[Taken]) -> None:
            request: dict[str, Json] = {
                "tokens": [each.grant["token"] for each in some]
            }
            word = "start"
            if own is not None:
                word, request["seconds"] = "renew", own
            results = await self._queues.say(queue, asker, word, request)
            for each, result in zip(some, results, strict=True):
                if result.ok:
                    begun.add(each.grant["token"])
                    self._keep(asker, each, own or each.grant["seconds"])

        failed = await _all_of(
            (queue, confirm(queue, own, some)) for (queue, own), some in groups.items()
        )
        if failed and not begun:
            raise failed[0]
        return [each for each in taken if each.grant["token"] in begun]

    def _keep(self, asker: Asker, taken: Taken, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        held = Held(taken.grant["token"], taken.queue, until)
        self._tokens.keep(key_of(asker, taken.queue, taken.grant["msg_id"]), held)

    async def end_at_once(
        self, asker: Asker, taken: Sequence[Taken]
    ) -> Sequence[Taken]:
        """End messages before their client has them, which so gets them once at most."""
        for each in taken:
            self._keep(asker, each, each.grant["seconds"])
        keys = [key_of(asker, each.queue, each.grant["msg_id"]) for each in taken]
        ended = await self.end(asker, keys, DONE)
        return [each for each, key in zip(taken, keys, strict=True) if key in ended]

    async def end(
        self, asker: Asker, keys: Iterable[Key], how: Mapping[str, Json]
    ) -> Collection[Key]:
        """End messages that a client holds; return those that it still held. Refusal:
        a queue could not end one, which the client holds on."""
        of_queue: dict[str, list[tuple[Key, Held]]] = defaultdict(list)
        for key in dict.fromkeys(keys):
            held = self._tokens.of(key)
            if held is not None:
                of_queue[held.queue].append((key, held))
        ended: set[Key] = set()

        async def finish(queue: str, some: Sequence[tuple[Key, Held]]) -> None:
            finishes: Json = [{"token": held.token, **how} for _, held in some]
            results = await self._queues.say(
                queue, asker, "finish", {"finishes": finishes}
            )
            for (key, _), result in zip(some, results, strict=True):
                if self._is_ended(queue, key, result):
                    ended.add(key)

        failed = await _all_of(
            (queue, finish(queue, some[at : at + MOST_WORDS]))
            for queue, some in of_queue.items()
            for at in range(0, len(some), MOST_WORDS)
        )
        if failed:
            raise failed[0]
        return ended

    def _is_ended(self, queue: str, key: Key, result: Result) -> bool:
        """Return whether a message was ended now; Refusal: it was not, for now."""
        _check_taken(queue, result)
        self._tokens.drop(key)
        return result.ok

    async def go_on(self, asker: Asker, key: Key) -> float:
        """Let a client hold a message for a whole lease more; return its seconds."""
        held = self._tokens.of(key)
        if held is None:
            raise Refusal(NO_JOB)
        tokens: Json = [held.token]
        [result] = await _of_queue(
            held.queue,
            self._queues.say(held.queue, asker, "renew", {"tokens": tokens}),
        )
        _check_taken(held.queue, result)
        if result.is_lost:
            self._tokens.drop(key)
            raise Refusal(NO_JOB)
        self._tokens.keep(key, held._replace(until=result.ends_at))
        if result.cancel:
            raise Refusal(f"ERR stop working on it, and NACK it: {result.cancel}")
        return result.seconds

    async def give_back(self, asker: Asker, taken: Iterable[Taken], why: str) -> None:
        """Give messages back, uncounted, that their client has not got."""
        of_queue: dict[str, list[Grant]] = defaultdict(list)
        for each in taken:
            of_queue[each.queue].append(each.grant)
            self._tokens.drop(key_of(asker, each.queue, each.grant["msg_id"]))

        async def release(queue: str, grants: Sequence[Grant]) -> None:
            tokens: Json = [grant["token"] for grant in grants]
            request = {"tokens": tokens, "why": why}
            await self._queues.say(queue, asker, "release", request)

        failed = await _all_of(
            (queue, release(queue, grants)) for queue, grants in of_queue.items()
        )
        for failure in failed:  # they run out
            log.warning("not given back: %s", fields(reason=failure.failure.text))


def _check_taken(queue: str, result: Result) -> None:
    """Refusal: a word about a lease was not taken, and the lease is not over."""
    if not (result.ok or result.is_lost):
        kind = result.kind or Kind.REFUSED
        raise refusal(queue, kind, result.text)


def _own_seconds(grant: Grant) -> float | None:
    """Return for how long the producer of a message wants it to be held."""
    seconds = grant["message"].get(LEASE_SECONDS)
    return float(seconds) if is_whole(seconds) and 0 < seconds <= LONGEST else None


async def _all_of(acts: Iterable[tuple[str, Awaitable[None]]]) -> list[Refusal]:
    """Do something at several queues; return what failed."""
    tasks = [_of_queue(queue, act) for queue, act in acts]
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for failure in ended:
        if isinstance(failure, BaseException) and not isinstance(failure, Refusal):
            raise failure
    return [failure for failure in ended if isinstance(failure, Refusal)]


async def _of_queue(queue: str, act: Awaitable[T]) -> T:
    """Do something at a queue; Refusal tells what went wrong there."""
    try:
        return await act
    except RQError as error:
        raise refusal_of(queue, error) from None
