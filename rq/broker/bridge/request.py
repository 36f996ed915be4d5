"""A command about queues of RQ as a client has sent it, and what all of them read of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rq.access.roles import Principal, Role
from rq.broker.bridge import ids
from rq.broker.bridge.holdings import Holdings, Taken
from rq.broker.bridge.leases import Leases, Presence, Wanted
from rq.broker.bridge.queues import Asker, Fields, Queues, name_in
from rq.broker.dialects.call import Refusal
from rq.config import secrets
from rq.errors import NotPermitted
from rq.message import guarded
from rq.resp import Value
from rq.words.nesting import Json

MOST_QUEUES = 100  # in one command
MOST_MESSAGES = 1000  # the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A command of a client; `args` come after its name."""

    args: Sequence[bytes]
    asker: Asker
    node_id: str
    queues: Queues
    leases: Leases
    holdings: Holdings
    groups: dict[str, bytes]  # of bananaq, one for each queue
    principal: Principal
    role: Role  # what the command takes
    client: Presence
    taken: list[Taken] = field(default_factory=list)  # what it is handed

    async def take(self, wanted: Wanted) -> Sequence[Taken]:
        """Return what is leased for the client."""
        self.taken.extend(await self.leases.take(self.asker, wanted, self.client))
        return self.taken

    def queue(self, word: bytes) -> str:
        """Return the queue that a word names; Refusal when it is none, or the client may
        not use it so."""
        queue = name_in(word)
        sends = self.role is Role.PRODUCER
        may = self.principal.may_send if sends else self.principal.sees
        if not may(queue):
            does = "send to" if sends else "ask of"
            name = self.principal.name
            raise Refusal(f"NOPERM this user ({name}) may not {does} queue {queue}")
        if sends:
            self._check_guarded(queue)
        return queue

    async def look(self, queue: str, command: str, fields: Fields) -> Json:
        """Return what a queue tells of itself or a message, as the client may see it."""
        value = await self.queues.look(queue, command, fields)
        sees_all = self.principal.may(Role.ADMIN)
        return value if sees_all else secrets.below_admin(value, queue)

    def _check_guarded(self, queue: str) -> None:
        try:
            guarded.check(queue, self.principal.sender)
        except NotPermitted as error:
            name = self.principal.name
            why = f"this user ({name}) may not send to queue {queue}"
            raise Refusal(f"NOPERM {why}: {error}") from None

    def queues_of(self, words: Sequence[bytes]) -> list[str]:
        """Return the queues that a command names; Refusal when it names others as well."""
        unique = list(dict.fromkeys(words))
        if not all(word.startswith(ids.PREFIX) for word in unique):
            raise Refusal("ERR name either rq: queues in a command or others, not both")
        if len(unique) > MOST_QUEUES:
            raise Refusal(f"ERR a command can name {MOST_QUEUES} rq: queues")
        return [self.queue(word) for word in unique]

    def now(self) -> float:
        """Return the time of day, in epoch seconds."""
        return time.time()

    def until(self, seconds: float) -> float:
        """Return when so much time is over, on the loop's clock."""
        return asyncio.get_running_loop().time() + seconds

    def job_id(self, queue: str, msg_id: str) -> str:
        """Return the id of a message as clients of Disque see it."""
        self.queues.learn(queue)
        return ids.job_id(self.node_id, ids.digest(queue), msg_id)


def check_number(messages: Sequence[object]) -> None:
    """Refusal when a command is about too many messages."""
    if len(messages) > MOST_MESSAGES:
        raise Refusal(
            f"ERR a command can be about {MOST_MESSAGES} messages of RQ, and this one is "
            f"about {len(messages)}"
        )


def public_name(queue: str) -> bytes:
    """Return a queue of RQ as clients see it."""
    return ids.PREFIX + queue.encode()


@dataclass(frozen=True, slots=True)
class Bridged:
    """What a command does with queues of RQ, and which of its words name them."""

    function: Callable[[Request], Awaitable[Value]]
    named: Callable[[Sequence[bytes]], Sequence[bytes]]
    role: Role


Table = Mapping[bytes, Bridged]


def first(args: Sequence[bytes]) -> Sequence[bytes]:
    """Return the one queue that most commands name."""
    return args[:1]


def every(args: Sequence[bytes]) -> Sequence[bytes]:
    """Return all words, any of which may name a queue."""
    return args


def refused(why: str) -> Callable[[Request], Awaitable[Value]]:
    """Return what a command does that makes no sense with queues of RQ."""

    async def refuse(_: Request) -> Value:
        raise Refusal(f"ERR {why}")

    return refuse
