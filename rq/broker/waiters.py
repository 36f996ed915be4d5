"""Clients that wait: who is next at which queue, and until when. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rq.broker.deadlines import Deadline, Deadlines
from rq.resp import Value

Want = TypeVar("Want")  # what it is that a client waits for


@dataclass(frozen=True, slots=True)
class Waiter(Generic[Want]):
    """A client whose command waits."""

    client: int
    queues: Sequence[bytes]
    want: Want
    until: float | None  # seconds of the broker's clock; None: for ever


class AnyWaiters(Protocol):
    """What those that wait have in common, whatever they wait for."""

    nothing: Value

    @property
    def deadlines(self) -> Deadlines[Deadline[int]]: ...

    def __len__(self) -> int: ...

    def remove(self, client: int) -> object: ...

    def ended(self, now: float) -> list[int]: ...


class Waiters(Generic[Want]):
    """Clients that wait, first come first served at each queue."""

    def __init__(self, nothing: Value) -> None:
        """`nothing`: the answer when the time of a client is over."""
        self.nothing = nothing
        # A plain dict would walk over all that have left its head to find the first.
        self._by_queue: dict[bytes, OrderedDict[int, Waiter[Want]]] = {}
        self._by_client: dict[int, Waiter[Want]] = {}
        self._ends: dict[int, Deadline[int]] = {}
        self.deadlines: Deadlines[Deadline[int]] = Deadlines()

    def __len__(self) -> int:
        return len(self._by_client)

    def add(self, waiter: Waiter[Want]) -> None:
        """Let a client wait, which waits for nothing else."""
        self._by_client[waiter.client] = waiter
        for queue in waiter.queues:
            clients = self._by_queue.get(queue)
            if clients is None:
                clients = self._by_queue[queue] = OrderedDict()
            clients[waiter.client] = waiter
        if waiter.until is not None:
            end = self._ends[waiter.client] = Deadline(waiter.client, waiter.until)
            self.deadlines.add(end)

    def remove(self, client: int) -> Waiter[Want] | None:
        """Let a client wait no longer; return how it did."""
        waiter = self._by_client.pop(client, None)
        for queue in waiter.queues if waiter else ():
            clients = self._by_queue.get(queue)
            if clients is not None:
                clients.pop(client, None)
                if not clients:
                    del self._by_queue[queue]
        end = self._ends.pop(client, None)
        if end is not None:
            self.deadlines.cancel(end)
        return waiter

    def until(self, client: int) -> float | None:
        """Return until when a client waits; None: for ever, or not at all."""
        waiter = self._by_client.get(client)
        return None if waiter is None else waiter.until

    def first(
        self, queue: bytes, is_there: Callable[[int], bool]
    ) -> Waiter[Want] | None:
        """Return who has waited longest at a queue; those who went wait no longer."""
        while (clients := self._by_queue.get(queue)) is not None:
            waiter = next(iter(clients.values()))
            if is_there(waiter.client):
                return waiter
            self.remove(waiter.client)
        return None

    def count(self, queue: bytes) -> int:
        """Return how many wait at a queue."""
        return len(self._by_queue.get(queue, ()))

    def at(self, queue: bytes) -> list[Waiter[Want]]:
        """Return all who wait at a queue, the longest first."""
        return list(self._by_queue.get(queue, {}).values())

    def queues(self) -> list[bytes]:
        """Return all queues at which clients wait."""
        return list(self._by_queue)

    def clients(self) -> list[int]:
        """Return all who wait."""
        return list(self._by_client)

    def ended(self, now: float) -> list[int]:
        """Return the clients whose time is over by now; they wait no longer."""
        if not self._ends:
            return []
        ended = [each.what for each in self.deadlines.due(now, len(self._ends))]
        for client in ended:
            self.remove(client)
        return ended
