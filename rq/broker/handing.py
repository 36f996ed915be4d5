"""Answers in which clients are handed jobs: those of bodies that lie in files, those that
clients have waited for, and those of which a client had no byte.

At all times what a client was handed is noted with the byte at which its answer begins,
until the kernel has taken that. When a connection ends, what is still noted goes back, in
whichever way it ended: as it was read, in the turn in which its job came, or with an answer
that lay behind others that it never took.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

from rq.broker import large
from rq.broker.bodies import has_places
from rq.broker.connection import SLICE, Connection
from rq.broker.dialects.call import Blocked
from rq.broker.later import Later
from rq.broker.node import Node
from rq.broker.outlet import TakeBack
from rq.broker.store import Store
from rq.resp import Value


class Handing:
    """Gives clients their answers, or takes back what these hold."""

    def __init__(
        self,
        node: Node,
        store: Store,
        connections: Mapping[int, Connection],
        later: Later,
        soon: Callable[[], None],
    ) -> None:
        """`soon` asks for a turn of the server."""
        self._node = node
        self._store = store
        self._connections = connections
        self._later = later
        self._soon = soon
        # By client: where an answer begins, and what lets be as it was what it hands.
        # The bytes only grow, so what has left is at the left.
        self._noted: dict[int, deque[tuple[int, TakeBack]]] = {}

    def answered(
        self, connection: Connection, value: Value | Blocked
    ) -> Value | Blocked:
        """Return the answer to a command, or that it comes once its bodies are read."""
        if self._node.handed:
            self._note()
        if isinstance(value, Blocked) or not self._has_places(value):
            return value
        return self._answer_later(connection, value)

    def answer_waiting(self) -> None:
        """Answer those who waited, for some time, and the others in the next turn; the
        answer to the command that let them go on stands before theirs."""
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
        """Note what clients are handed; of those who are gone let it be as it was."""
        while self._node.handed:  # and what that lets go on is handed to others
            handed, self._node.handed = self._node.handed, []
            for client, take_back in handed:
                connection = self._connections.get(client)
                if connection is None:
                    take_back(self._store.clock.now())
                else:
                    noted = self._noted.setdefault(client, deque())
                    noted.append((connection.at, take_back))

    def lost(self, connection: Connection) -> None:
        """A client is gone: let be as it was what it was handed in answers of which it
        had no byte; once, for then another one may have it."""
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
        """Answers have left: what the kernel has taken of them is had."""
        for client, noted in list(self._noted.items()):
            connection = self._connections[client]
            taken = connection.taken
            while noted and noted[0][0] < taken:
                noted.popleft()
            # What has no answer, for the client wants none, is had as well.
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
        """Whether bodies of an answer have to be read first."""
        return self._store.bodies.live and has_places(value)

    def _answer_later(self, connection: Connection, value: Value) -> Blocked:
        """Give an answer once its bodies are read."""
        return self._later.answer(connection, large.read(self._store.bodies, value))
