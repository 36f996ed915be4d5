"""Replies in which clients are handed jobs. Jobs whose reply was not sent at all go back to
the queue unchanged.

At all times each job that a client was handed is noted with the byte at which its reply
begins, until the kernel has taken that byte. When a connection ends, the jobs still noted
go back, however it ended: as its end was read, in the turn in which its job came, or with
replies that lay behind others that the client never took. Once a byte has left the client
may have the job, so it comes again when its RETRY is over, and not before.

Bodies that lie in files are read, in a thread, before the reply is encoded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

from rq.broker.clients.connection import SLICE, Connection
from rq.broker.clients.scheduler import Scheduler
from rq.broker.desks.node import Node
from rq.broker.desks.outlet import TakeBack
from rq.broker.dialects.call import Blocked
from rq.broker.state.body import Place
from rq.broker.store.bodies import Bodies, has_places
from rq.broker.store.store import Store
from rq.errors import Damaged, cause_of
from rq.logs import fields
from rq.resp import Failure, Value

_LONGEST = 200  # characters of an answer that the log takes

log = logging.getLogger(__name__)


class Deliveries:
    """Gives clients their replies, and takes back the jobs in those that were not sent."""

    def __init__(
        self,
        node: Node,
        store: Store,
        connections: Mapping[int, Connection],
        scheduler: Scheduler,
        soon: Callable[[], None],
    ) -> None:
        """`soon` asks for a turn of the server."""
        self._node = node
        self._store = store
        self._connections = connections
        self._scheduler = scheduler
        self._soon = soon
        # By client: at which byte a reply begins, and what takes back the jobs in it. The
        # bytes only grow, so the replies that have left stand first.
        self._noted: dict[int, deque[tuple[int, TakeBack]]] = {}

    def answered(
        self, connection: Connection, value: Value | Blocked
    ) -> Value | Blocked:
        """Return the reply to a command, or that it comes once its bodies are read."""
        if self._node.handed:
            self._note()
        if isinstance(value, Blocked) or not self._has_places(value):
            return value
        return self._answer_later(connection, value)

    def answer_waiting(self) -> None:
        """Answer clients that waited, for a slice, and the others in the next turn. The
        reply to the command that served them is in its place before theirs."""
        node, until = self._node, time.monotonic() + SLICE
        self._note()
        while node.answers:
            answers, node.answers = node.answers, []
            for done, (client, value) in enumerate(answers):
                if time.monotonic() > until:
                    node.answers[:0] = answers[done:]
                    self._soon()
                    return
                self._answer_one(client, value)

    def _note(self) -> None:
        """Note the jobs that clients are handed; take back those of clients that are
        gone, which may hand them to others."""
        while self._node.handed:
            handed, self._node.handed = self._node.handed, []
            for client, take_back in handed:
                connection = self._connections.get(client)
                if connection is None:
                    take_back(self._store.clock.now())
                else:
                    noted = self._noted.setdefault(client, deque())
                    noted.append((connection.at, take_back))

    def lost(self, connection: Connection) -> None:
        """A client is gone: take back the jobs in replies of which the kernel took no
        byte. It is done once, for then another client may have them."""
        self._note()
        noted = self._noted.pop(connection.number, ())
        back = [take_back for at, take_back in noted if at >= connection.taken]
        if not back:
            return
        now = self._store.clock.now()
        for take_back in back:
            take_back(now)
        self.answer_waiting()
        self._soon()

    def have_left(self) -> None:
        """Replies have left: those of which the kernel has taken a byte are delivered."""
        for client, noted in list(self._noted.items()):
            connection = self._connections[client]
            taken = connection.taken
            while noted and noted[0][0] < taken:
                noted.popleft()
            # What a client was handed that wants no replies is delivered as well.
            if not noted or (taken == connection.at and not connection.waits):
                del self._noted[client]

    def _answer_one(self, client: int, value: Value) -> None:
        connection = self._connections.get(client)
        if connection is None:
            return  # it is gone
        if self._has_places(value):
            self._answer_later(connection, value)
        else:
            connection.answer_waiting(value)

    def _has_places(self, value: Value) -> bool:
        """Whether bodies of a reply have to be read first."""
        return self._store.bodies.live and has_places(value)

    def _answer_later(self, connection: Connection, value: Value) -> Blocked:
        """Give a reply once its bodies are read."""
        return self._scheduler.answer_later(
            connection, asyncio.to_thread(_read, self._store.bodies, value)
        )


def _read(bodies: Bodies, value: Value) -> Value:
    """Return a reply with the bodies that lie in files. Jobs whose body cannot be read are
    left out, if there are others, and the log names them."""
    try:
        return bodies.read(value)
    except (OSError, Damaged) as error:
        if isinstance(value, list) and all(isinstance(each, list) for each in value):
            read = [_read(bodies, each) for each in value]
            rest = [each for each in read if not isinstance(each, Failure)]
            return rest or read[0]
        why = cause_of(error) if isinstance(error, OSError) else error
        log.error("a body cannot be read: %s", fields(reason=why, of=_named(value)))
        return Failure(f"ERR a body cannot be read: {why}")


def _named(value: Value) -> str:
    """Return what stands in a reply beside bodies: a queue, an id."""
    some = value if isinstance(value, list) else []
    texts = (each for each in some if not isinstance(each, Place))
    return " ".join(
        each.decode(errors="backslashreplace") if isinstance(each, bytes) else str(each)
        for each in texts
    )[:_LONGEST]
