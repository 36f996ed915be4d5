"""Answers in which clients are handed jobs: those of bodies that lie in files, those that
clients have waited for, and those of which nobody had a byte."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from rq.broker import large
from rq.broker.bodies import has_places
from rq.broker.connection import SLICE, Connection
from rq.broker.dialects.call import Blocked
from rq.broker.later import Later
from rq.broker.node import Node
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
        self._reading: set[int] = set()  # clients: bodies of their answers are read

    def answered(
        self, connection: Connection, value: Value | Blocked
    ) -> Value | Blocked:
        """Return the answer to a command, or that it comes once its bodies are read."""
        if isinstance(value, Blocked) or not self._has_places(value):
            return value
        return self._answer_later(connection, value)

    def answer_waiting(self) -> None:
        """Answer those who waited, for some time, and the others in the next turn; the
        answer to the command that let them go on stands before theirs."""
        node, until = self._node, time.monotonic() + SLICE
        while node.answers:
            answers, node.answers = node.answers, []
            for done, (client, value) in enumerate(answers):
                if time.monotonic() > until:
                    node.answers[:0] = answers[done:]
                    self._soon()
                    return
                self._answer_one(client, value)

    def take_back(self, client: int) -> None:
        """Let jobs be as they were that a client was handed in an answer of which it
        had no byte; once, for then another one may have them."""
        now, desk = self._store.clock.now(), self._node.desk
        theirs = [job_id for other, job_id in desk.handed if other == client]
        if theirs:
            desk.handed = [each for each in desk.handed if each[0] != client]
        for job_id in theirs:
            desk.take_back(job_id, now)
        self.answer_waiting()
        self._soon()

    def have_left(self, but: Iterable[int]) -> None:
        """Answers have left, but those of some clients, of those whose bodies are read,
        and of those that are still to be answered."""
        desk, without = self._node.desk, self._reading.union(but)
        without |= {client for client, _ in self._node.answers}
        desk.handed = [each for each in desk.handed if each[0] in without]

    def _answer_one(self, client: int, value: Value) -> None:
        connection = self._connections.get(client)
        if connection is None:
            self.take_back(client)
        elif self._has_places(value):
            self._answer_later(connection, value)
        else:
            connection.answer_waiting(value)

    def _has_places(self, value: Value) -> bool:
        """Whether bodies of an answer have to be read first."""
        return self._store.bodies.live and has_places(value)

    def _answer_later(self, connection: Connection, value: Value) -> Blocked:
        """Give an answer once its bodies are read. A client that is gone by then has
        not got what it was handed."""
        self._reading.add(connection.number)  # before the turn that this is in ends
        return self._later.answer(connection, self._with_bodies(connection, value))

    async def _with_bodies(self, connection: Connection, value: Value) -> Value:
        client = connection.number
        try:
            return await large.read(self._store.bodies, value)
        finally:
            self._reading.discard(client)
            if client not in self._connections:
                self.take_back(client)
