"""Lets clients of the broker use queues of RQ: knows which commands are about these, and
answers them when the owners have."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Protocol

from rq.access.roles import Role
from rq.broker.bridge import bananaq, disque, ids, redisrq
from rq.broker.bridge.holdings import Holdings
from rq.broker.bridge.leases import HUNG_UP, Leases, Presence
from rq.broker.bridge.queues import Asker, Queues, name_in, refusal_of
from rq.broker.bridge.request import MOST_MESSAGES, Bridged, Request, check_number
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require
from rq.broker.desks.node import Node
from rq.broker.dialects.call import BLOCKED, Blocked, Refusal
from rq.errors import RQError
from rq.kinds import Kind
from rq.layout import Root
from rq.logs import fields
from rq.resp import Failure, Value
from rq.rpc.lines.owners import ClientGone

_NAMED = {**disque.TABLE, **redisrq.TABLE, **bananaq.TABLE}
_OF_JOBS = disque.OF_JOBS
_NO_ROOT = "ERR this node runs alone, without an RQ: it knows no rq: queues"
_FAILED = "ERR the command failed; log/broker.log says why"
_LABEL, _MOST_LABEL = "redis", 64
_SENDS, _FEWEST = frozenset({b"ADDJOB", b"QADD"}), 3  # words behind the name at least

log = logging.getLogger(__name__)


class Local(Protocol):
    """Does with the node's own jobs what a command says."""

    def __call__(self, args: Sequence[bytes]) -> Value | Blocked: ...


class Bridge:
    """The way from the clients of a broker to the queues of its root, if it has one."""

    def __init__(self, root: Root | None, node: Node) -> None:
        self._node = node
        self._queues = None if root is None else Queues(root)
        self._groups: dict[str, bytes] = {}
        self._served: dict[int, Request] = {}  # by client: its last command
        # By client: what it was handed, and where the answer begins (see Connection).
        self._handed: dict[int, deque[tuple[int, Request]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        if self._queues is not None:
            self._holdings = Holdings(self._queues)
            self._leases = Leases(self._queues, self._holdings)

    @property
    def blocked(self) -> int:
        """How many clients wait for messages."""
        return 0 if self._queues is None else self._leases.clients

    def takes(self, name: bytes, args: Sequence[bytes]) -> bool:
        """Return whether a command is about queues of RQ, or messages of them."""
        if name in _OF_JOBS:
            return self._queues is not None and any(map(self._is_ours, args))
        for word in args:  # most commands have no such word, which is soon seen
            if word.startswith(ids.PREFIX):
                break
        else:
            return False
        entry = _NAMED.get(name)
        named = () if entry is None else entry.named(args)
        return any(word.startswith(ids.PREFIX) for word in named)

    def _is_ours(self, job: bytes) -> bool:
        """Return whether an id is of a message."""
        if job.decode(errors="replace") in self._node.jobs.by_id:
            return False
        pair = ids.parsed(job)
        if pair is None or self._queues is None:
            return False
        return self._queues.named(pair[0]) is not None

    def obey(
        self, connection: Connection, name: bytes, args: Sequence[bytes], local: Local
    ) -> Blocked:
        """Do what a client asks, in a while. Ids of the node's own jobs are for `local`.
        Refusal: it may not, or this node has no RQ."""
        if self._queues is None:
            raise Refusal(_NO_ROOT)
        entry, count = _NAMED.get(name) or _OF_JOBS[name], 0
        if entry.role is not Role.PRODUCER:  # whom a queue lets send, whatever they are
            require(
                connection.principal, entry.role, f"{name.decode()} of queues of RQ"
            )
        if name in _OF_JOBS and entry.role is Role.WORKER:
            args, count = self._without_own(args, local)
        work = [self._request(connection, entry, args)]
        self._served[connection.number] = work[0][1]
        if _sends([name, *args]):
            more = connection.take_those(_sends, MOST_MESSAGES - 1)
            work += [
                self._request(connection, _NAMED[each[0].upper()], each[1:])
                for each in more
            ]
        self._begin(self._answer(connection, work, count))
        return BLOCKED

    def _request(
        self, connection: Connection, entry: Bridged, args: Sequence[bytes]
    ) -> tuple[Bridged, Request]:
        principal, queues = connection.principal, self._queues
        assert principal is not None
        assert queues is not None
        return entry, Request(
            args=args,
            asker=Asker(principal.name, connection.name[:_MOST_LABEL] or _LABEL),
            principal=principal,
            role=entry.role,
            node_id=self._node.node_id,
            queues=queues,
            leases=self._leases,
            holdings=self._holdings,
            groups=self._groups,
            client=Presence(lambda: connection.is_there),
        )

    def _begin(self, act: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _without_own(
        self, args: Sequence[bytes], local: Local
    ) -> tuple[Sequence[bytes], int]:
        """Return the ids that are of messages, and for how many of the node's own jobs
        the command has been done."""
        check_number(args)
        own = [arg for arg in args if not self._is_ours(arg)]
        count = local(own) if own else 0
        others = set(own)
        ours = [arg for arg in args if arg not in others]
        return ours, count if isinstance(count, int) else 0

    async def _answer(
        self,
        connection: Connection,
        work: Sequence[tuple[Bridged, Request]],
        count: int,
    ) -> None:
        """Answer commands in their order; the first counts `count` jobs beside its own."""
        values = await asyncio.gather(*(_value(entry, each) for entry, each in work))
        if count and isinstance(values[0], int):
            values[0] += count
        _, request = work[0]
        if request.client.is_gone:
            connection.kill()  # it may have sent more than is read before its end
            await self._give_back(request)
            return
        if request.taken:
            self._note_handed(connection, request)
        connection.answer_waiting(*values)

    def _note_handed(self, connection: Connection, request: Request) -> None:
        handed = self._handed.setdefault(connection.number, deque())
        while handed and handed[0][0] < connection.taken:
            handed.popleft()
        handed.append((connection.at, request))

    def lost(self, connection: Connection) -> None:
        """A client is gone; what it was handed in an answer of which it had no byte is
        given back."""
        request = self._served.pop(connection.number, None)
        handed = self._handed.pop(connection.number, ())
        if request is not None:
            request.client.ended.set()
        for at, each in handed:
            if at >= connection.taken:
                self._begin(self._give_back(each))

    async def _give_back(self, request: Request) -> None:
        await self._holdings.give_back(request.asker, request.taken, HUNG_UP)

    def close(self) -> None:
        """Let no client wait any more: the broker stops."""
        for task in self._tasks:
            task.cancel()
        if self._queues is not None:
            self._queues.end_waits()
            self._queues.close()


async def _value(entry: Bridged, request: Request) -> Value:
    """Return the answer to a command, be it an error."""
    try:
        return await entry.function(request)
    except Refusal as refusal:
        return refusal.failure
    except RQError as error:
        queue = _named(request) if error.kind is Kind.DOWN else ""
        return refusal_of(queue, error).failure
    except ClientGone:
        return None
    except Exception:
        log.exception("a command failed: %s", fields(user=request.asker.user))
        return Failure(_FAILED)


def _named(request: Request) -> str:
    """Return the queue that a command names first; "": an id comes there."""
    is_named = request.args[0].startswith(ids.PREFIX)
    return name_in(request.args[0]) if is_named else ""


def _sends(command: Sequence[bytes]) -> bool:
    """Return whether a command sends a message and need not wait until the one before it
    is answered; MAXLEN counts what that has sent."""
    name, *args = command
    if name.upper() not in _SENDS or len(args) < _FEWEST:
        return False
    is_counted = b"MAXLEN" in map(bytes.upper, args[_FEWEST:])
    return args[0].startswith(ids.PREFIX) and not is_counted
