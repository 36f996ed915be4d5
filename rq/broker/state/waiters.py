"""Clients that wait: who is next at which queue, and until when. Pure.

A client may wait at a thousand queues, and a thousand of those clients may go in one turn:
served, hung up, or out of time. So a client waits no longer at once, and its places at many
queues are cleared in slices. Until then such a place is stale: it is of a waiter that
`_by_client` does not have, and a look at a queue passes over it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rq.broker.state.deadlines import Deadline, Deadlines
from rq.resp import Value

Want = TypeVar("Want")  # what it is that a client waits for

MOST_PLACES = 1_000_000  # at queues, of all clients: each takes some 200 bytes
_FEW = 16  # places that a client may always have, and that are cleared at once
_SLICE = 4_000  # places that are cleared in a turn


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

    @property
    def is_clearing(self) -> bool: ...

    def __len__(self) -> int: ...

    def clear_some(self) -> None: ...

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
        self._stale: deque[tuple[Waiter[Want], int]] = deque()  # and places cleared
        self._places = 0  # stale ones, too
        self.deadlines: Deadlines[Deadline[int]] = Deadlines()

    def __len__(self) -> int:
        return len(self._by_client)

    def has_room(self, queues: Sequence[bytes]) -> bool:
        """Whether one more client may wait at so many queues."""
        number = len(queues)
        return number <= _FEW or self._places + number <= MOST_PLACES

    def add(self, waiter: Waiter[Want]) -> None:
        """Add a client, which waits for nothing else."""
        self._by_client[waiter.client] = waiter
        self._places += len(waiter.queues)
        for queue in waiter.queues:
            self._put_in(waiter, queue)
        if waiter.until is not None:
            end = self._ends[waiter.client] = Deadline(waiter.client, waiter.until)
            self.deadlines.add(end)

    def remove(self, client: int) -> Waiter[Want] | None:
        """Remove a client; return for what it waited."""
        waiter = self._by_client.pop(client, None)
        if waiter is None:
            return None
        if len(waiter.queues) > _FEW:
            self._stale.append((waiter, 0))
        else:
            self._clear(waiter, waiter.queues)
        end = self._ends.pop(client, None)
        if end is not None:
            self.deadlines.cancel(end)
        return waiter

    def _put_in(self, waiter: Waiter[Want], queue: bytes) -> None:
        clients = self._by_queue.get(queue)
        if clients is None:
            clients = self._by_queue[queue] = OrderedDict()
        clients[waiter.client] = waiter

    def _take_out(self, waiter: Waiter[Want], queue: bytes) -> None:
        """Clear a place, if it is not another one's: a client may wait again by now."""
        clients = self._by_queue.get(queue)
        if clients is None or clients.get(waiter.client) is not waiter:
            return
        del clients[waiter.client]
        if not clients:
            del self._by_queue[queue]

    # ---- stale places

    @property
    def is_clearing(self) -> bool:
        """Whether there are some."""
        return bool(self._stale)

    def clear_some(self) -> None:
        """Clear a slice of them."""
        left = _SLICE
        while left > 0 and self._stale:
            waiter, at = self._stale.popleft()
            queues = waiter.queues[at : at + left]
            self._clear(waiter, queues)
            left -= len(queues)
            if (at := at + len(queues)) < len(waiter.queues):
                self._stale.appendleft((waiter, at))

    def _clear(self, waiter: Waiter[Want], queues: Sequence[bytes]) -> None:
        self._places -= len(queues)
        for queue in queues:
            self._take_out(waiter, queue)

    def _waits(self, waiter: Waiter[Want]) -> bool:
        return self._by_client.get(waiter.client) is waiter

    # ---- looking

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
            if self._waits(waiter):
                if is_there(waiter.client):
                    return waiter
                self.remove(waiter.client)
            self._take_out(waiter, queue)
        return None

    def count(self, queue: bytes) -> int:
        """Return how many wait at a queue."""
        return len(self._by_queue.get(queue, ()))

    def at(self, queue: bytes) -> list[Waiter[Want]]:
        """Return all who wait at a queue, the longest first."""
        clients = list(self._by_queue.get(queue, {}).values())
        return list(filter(self._waits, clients)) if self._stale else clients

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
