"""Messages of RedisRQ, and the clients that wait for them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rq.broker.desks.outlet import Outlet
from rq.broker.state.body import size_of
from rq.broker.state.bounds import Room
from rq.broker.state.reliable import (
    Acked,
    Cleared,
    Deleted,
    Popped,
    Pushed,
    ReliableQueues,
    text_of,
)
from rq.broker.state.waiters import Waiters
from rq.resp import Value

_AT_ONCE = 1_000  # clients that are answered in one go
_Item = tuple[str, bytes]  # a message: its id, its body


class ReliableDesk:
    """Takes messages and hands them out."""

    def __init__(self, outlet: Outlet) -> None:
        self.queues = ReliableQueues()
        self.waiters: Waiters[int] = Waiters(None)  # that many of a queue
        self.unserved: dict[
            bytes, None
        ] = {}  # queues at which more clients can be served
        self._outlet = outlet

    def push(
        self, key: bytes, bodies: Sequence[bytes], now: float, wall_ms: int
    ) -> list[str]:
        """Take messages; return their ids. `wall_ms` is the time of day."""
        ids = self.queues.queue(key).next_ids(len(bodies), wall_ms)
        self._outlet.emit(Pushed(key, ids, bodies), now)
        self.serve(key, now)
        return ids

    def pop(
        self, key: bytes, count: int, client: int, room: Room, now: float
    ) -> list[tuple[str, bytes]]:
        """Hand out the first messages of a queue."""
        if key in self.unserved:  # who waited longer comes first
            self.serve(key, now)
        queue = self.queues.by_key.get(key)
        if queue is None or not queue.undelivered or count <= 0:
            return []
        if key in self.unserved:  # and there are more of them than for one go
            return []
        some = _first(iter(queue.undelivered.items()), count, room)
        ids = [msg_id for msg_id, _ in some]
        self._pop(key, ids, now)
        self._outlet.hand(client, partial(self.take_back, key, ids))
        return some

    def _pop(self, key: bytes, ids: Sequence[str], now: float) -> None:
        if ids:
            popped = Popped(key, ids, [1] * len(ids), now)
            self._outlet.emit(popped, now, sync=False)

    def take_back(self, key: bytes, ids: Sequence[str], now: float) -> None:
        """A client was handed messages, and cannot have had a byte of the answer: let
        them wait in their places, as if it had not asked."""
        queue = self.queues.by_key.get(key)
        if queue is None:
            return
        theirs = [
            msg_id
            for msg_id in ids
            if (there := queue.delivered.get(msg_id)) is not None and there.times == 1
        ]
        if theirs:
            none = [0] * len(theirs)
            self._outlet.emit(Popped(key, theirs, none, now), now, sync=False)
            self.serve(key, now)

    def recover(
        self, key: bytes, ids: Sequence[str], now: float
    ) -> list[tuple[str, bytes]]:
        """Hand out again messages that were handed out."""
        delivered = self.queues.by_key[key].delivered
        some = [(msg_id, delivered[msg_id].body) for msg_id in ids]
        if ids:
            times = [delivered[msg_id].times + 1 for msg_id in ids]
            self._outlet.emit(Popped(key, ids, times, now), now, sync=False)
        return some

    def ack(self, key: bytes, ids: Sequence[str], now: float) -> list[str]:
        """Acknowledge messages; return those of them that were handed out."""
        queue = self.queues.by_key[key]
        done = [msg_id for msg_id in dict.fromkeys(ids) if msg_id in queue.delivered]
        if done:
            self._outlet.emit(Acked(key, done), now)
        return done

    def delete(self, keys: Sequence[bytes], now: float) -> int:
        """Remove queues with all their messages; return how many there were."""
        there = [key for key in dict.fromkeys(keys) if key in self.queues.by_key]
        for key in there:
            self._outlet.emit(Deleted(key), now)
        return len(there)

    def clear(self, now: float) -> None:
        """Remove all queues."""
        self._outlet.emit(Cleared(text_of(self.queues.last)), now)

    def serve(self, key: bytes, now: float) -> None:
        """Answer those who wait for messages of a queue, as long as there are some; all
        but the first of a crowd are answered in the next ticks."""
        queue, most = self.queues.by_key.get(key), _AT_ONCE
        self.unserved.pop(key, None)
        if queue is None or not queue.undelivered:
            return
        items, ids = iter(queue.undelivered.items()), []
        is_there = self._outlet.is_there
        while (waiter := self.waiters.first(key, is_there)) is not None:
            if not most:
                self.unserved[key] = None
                break
            some = _first(items, waiter.want, Room())
            if not some:
                break
            most -= 1
            own = [msg_id for msg_id, _ in some]
            ids += own
            self.waiters.remove(waiter.client)
            self._outlet.hand(waiter.client, partial(self.take_back, key, own))
            answer: list[Value] = [[key, msg_id, body] for msg_id, body in some]
            self._outlet.answer(waiter.client, answer)
        self._pop(key, ids, now)  # one event for all

    def tick(self, now: float) -> None:
        """Answer more of those who wait, of one queue."""
        for key in self.unserved:
            self.serve(key, now)
            break


def _first(items: Iterator[_Item], count: int, room: Room) -> list[_Item]:
    """Take the next messages, as many as an answer has room for."""
    some: list[_Item] = []
    while len(some) < count and room.left > 0:
        item = next(items, None)
        if item is None:
            break
        room.left -= size_of(item[1])
        some.append(item)
    return some
