"""Asks the owners of RQ's queues for clients of the broker.

Whatever is asked carries a key, a request or a token, so that it is done once however
often it is asked: an answer that was lost is asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from rq import names
from rq.broker.bridge import ids
from rq.broker.dialects.call import Refusal
from rq.errors import BadInput, NoSuchQueue, OutcomeUnknown, RQError, Unreachable
from rq.kinds import PASSING, Kind
from rq.layout import Root
from rq.message.fieldnames import BY, KEY_OF
from rq.message.fieldnames import KEY as _KEY
from rq.replies import Counts, Grant, GrantsView
from rq.rpc import client
from rq.rpc.lines.owners import ClientGone, Owners
from rq.words.nesting import Json
from rq.work import holding
from rq.work.holding import Result

MOST_WORDS = 1000  # tokens in one request
MOST_WAIT = 60.0  # seconds that an owner lets a client wait
PATIENCE = 10.0  # seconds for an answer that was lost
PAUSE = 0.2  # seconds between two tries
_LOOK = 1.0  # seconds between two looks for queues that are new
_FIRST_LOOK, _LONGEST_LOOK = 0.1, 2.0  # seconds between two for an owner

_OF_RQ = (_KEY, KEY_OF, BY)  # said below

Fields = Mapping[str, Json]


class Asker(NamedTuple):
    """For whom a queue is asked."""

    user: str
    label: str


class Queues:
    """All queues of a root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._owners = Owners(root)
        self._returns = _Returns(self._owners)
        self._names: dict[int, str] = {}  # by their digests
        self._looked = 0.0

    def named(self, digest: int) -> str | None:
        """Return the queue that an id tells of; None: there is none."""
        now = time.monotonic()
        if digest not in self._names and now - self._looked >= _LOOK:
            self._looked = now
            with contextlib.suppress(OSError):
                there = filter(names.is_queue_name, os.listdir(self._root.queues))
                self._names = {ids.digest(name): name for name in there}
        return self._names.get(digest)

    # ---- one queue

    async def send(self, queue: str, fields: Fields, user: str) -> str:
        """Send a message of a user, once; return its id."""
        if fields.get("dest", queue) != queue:
            raise BadInput(f"dest is in the body, and not {queue}: leave it out")
        key = fields.get(_KEY)  # null is none
        whose = (
            {_KEY: f"broker/{secrets.token_hex(16)}"}
            if key is None
            else {_KEY: key, KEY_OF: user}
        )
        kept = {name: fields[name] for name in fields if name not in _OF_RQ}
        request = {**kept, **whose, BY: user, "dest": queue}
        url = await self._ask(queue, "create_message", request)
        return names.split_url(str(url))[1] or ""

    async def counts(self, queue: str) -> Counts:
        """Return how many messages there are in each state."""
        reply = await self._owners.ask(queue, "num_messages")
        if isinstance(reply, dict):
            return cast(Counts, reply)
        return cast(Counts, client.demanded(reply))

    async def look(self, queue: str, command: str, request: Fields) -> Json:
        """Return what a queue tells of itself or a message."""
        return await self._owners.demand(queue, command, request)

    # ---- leases

    async def lease(
        self, queue: str, asker: Asker, count: int, seconds: float | None
    ) -> Sequence[Grant]:
        """Lease what is due now, at most `count`; `seconds`: for how long, or as long as
        the queue says."""
        request = self._wanted(asker, count, seconds)
        return cast(GrantsView, await self._ask(queue, "lease", request))["leases"]

    async def wait(
        self,
        queue: str,
        asker: Asker,
        count: int,
        seconds: float | None,
        until: float | None,
        over: asyncio.Event,
    ) -> Sequence[Grant]:
        """As `lease`, as soon as something is due; nothing when it is not by `until` on
        the loop's clock. An owner that does not answer meanwhile may come back.
        ClientGone: `over` was set before there was an answer."""
        loop = asyncio.get_running_loop()
        while True:
            left = MOST_WAIT if until is None else until - loop.time()
            if left <= 0:
                return []
            wait = min(left, MOST_WAIT)
            request = {**self._wanted(asker, count, seconds), "wait": wait}
            try:
                reply = await self._owners.wait(queue, "lease", request, wait, over)
            except (Unreachable, OutcomeUnknown):
                await self._returns.wait(queue, left, over)
                if over.is_set():
                    raise ClientGone from None
                continue
            if grants := cast(GrantsView, reply)["leases"]:
                return grants

    def _wanted(
        self, asker: Asker, count: int, seconds: float | None
    ) -> dict[str, Json]:
        request: dict[str, Json] = {
            "who": asker.user,
            "label": asker.label,
            "count": count,
            "request": secrets.token_hex(16),
        }
        return request if seconds is None else {**request, "seconds": seconds}

    async def say(
        self, queue: str, asker: Asker, word: str, request: Fields
    ) -> Sequence[Result]:
        """Say a word about leases; return what became of it for each."""
        sent = asyncio.get_running_loop().time()
        reply = await self._ask(queue, word, {"who": asker.user, **request})
        rows = cast(Mapping[str, Sequence[Mapping[str, Json]]], reply)["results"]
        return [holding.result(row, sent) for row in rows]

    # ----

    async def _ask(self, queue: str, command: str, request: Fields) -> Json:
        """Ask for what is done once; ask again when it is not known whether it was."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        unknown: RQError | None = None
        while True:
            try:
                return await self._owners.demand(queue, command, request)
            except OutcomeUnknown as error:
                unknown = error
            except RQError as error:
                if unknown is None or error.kind not in PASSING:
                    raise
            if loop.time() > end:
                raise unknown
            await asyncio.sleep(PAUSE)

    def learn(self, queue: str) -> None:
        """Know a queue by its digest from now on."""
        self._names.setdefault(ids.digest(queue), queue)

    def end_waits(self) -> None:
        """Let no client wait any more: the broker stops."""
        self._owners.end_waits()

    def close(self) -> None:
        self._owners.close()


def name_in(data: bytes) -> str:
    """Return the queue of RQ that a name `rq:NAME` means; NoSuchQueue when no queue can
    be called that."""
    name = data.removeprefix(ids.PREFIX).decode(errors="backslashreplace")
    if not names.is_queue_name(name):
        raise NoSuchQueue(f"rq:{name:.60} names no queue of RQ: {names.RULE}")
    return name


class _Returns:
    """Waits for owners that do not answer: one of all clients that wait looks for each."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._looks: dict[str, asyncio.Task[None]] = {}  # by queue
        self._waiting: dict[str, int] = {}  # how many do

    async def wait(self, queue: str, seconds: float, gone: asyncio.Event) -> None:
        """Wait until the owner of a queue answers again, so long at most, or until
        `gone` is set."""
        if queue not in self._looks:
            self._looks[queue] = asyncio.ensure_future(self._look(queue))
        self._waiting[queue] = self._waiting.get(queue, 0) + 1
        left = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait(
                {self._looks[queue], left},
                timeout=seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            left.cancel()
            self._waiting[queue] -= 1
            self._forget_if_unwanted(queue)

    def _forget_if_unwanted(self, queue: str) -> None:
        if not self._waiting[queue]:
            del self._waiting[queue]
            self._looks.pop(queue).cancel()

    async def _look(self, queue: str) -> None:
        pause = _FIRST_LOOK
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK)
            try:
                await self._owners.ask(queue, "ping")
            except (Unreachable, OutcomeUnknown):
                continue
            except RQError:
                return  # who waits asks it, and is told what is wrong
            return


# ---- what clients are told when a queue refuses, or does not answer


_CLASS: Mapping[Kind, str] = {
    Kind.DOWN: "PAUSED",
    Kind.CLOSED: "PAUSED",
    Kind.NO_ROOM: "MISCONF",
    Kind.DISK_FAILED: "MISCONF",
    Kind.NOT_ALLOWED: "NOPERM",
    Kind.OTHER_QUEUE: "NOPERM",
}


def refusal(queue: str, kind: Kind, text: str) -> Refusal:
    """Return the answer that a command gets when a queue says so; "": one that is not
    named."""
    if kind is Kind.DOWN:
        text = f"queue {queue} is DOWN" if queue else "the queue is DOWN"
    about = "" if queue in text else f"queue {queue}: "
    return Refusal(f"{_CLASS.get(kind, 'ERR')} {about}{text}")


def refusal_of(queue: str, error: RQError) -> Refusal:
    """Return the answer that a command gets for a failure."""
    return refusal(queue, error.kind, str(error))
