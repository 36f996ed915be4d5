"""The queues of RedisRQ: of each the messages that no client has had yet, and those that were
handed out and are not acknowledged. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import NamedTuple, TypeVar

from rq.broker.state.body import Place, Weight, size_of
from rq.broker.state.bounds import Room
from rq.broker.state.freeing import Freeing

Item = TypeVar("Item")
Id = tuple[int, int]  # milliseconds, and a number among those of the same


class Pushed(NamedTuple):
    """Messages came to the end of a queue."""

    key: bytes
    ids: Sequence[str]
    bodies: Sequence[bytes]


class Popped(NamedTuple):
    """Messages were handed out, for the first time or again."""

    key: bytes
    ids: Sequence[str]
    times: Sequence[int]  # how often each was; 0: it was not, and waits
    at: float  # seconds of the broker's clock


class Acked(NamedTuple):
    """Messages are done."""

    key: bytes
    ids: Sequence[str]


class Named(NamedTuple):
    """A queue is there, and what its last id was."""

    key: bytes
    last: str


class Deleted(NamedTuple):
    """A queue is gone with all its messages."""

    key: bytes


class Cleared(NamedTuple):
    """All queues are gone; ids that come are above `last`."""

    last: str


Event = Pushed | Popped | Acked | Named | Deleted | Cleared


def text_of(number: Id) -> str:
    """Return an id as clients see it."""
    return f"{number[0]}-{number[1]}"


def id_of(text: str) -> Id:
    """Return the numbers of an id."""
    milliseconds, _, number = text.partition("-")
    return int(milliseconds), int(number)


class Delivered:
    """A message that was handed out."""

    __slots__ = ("at", "body", "times")

    def __init__(self, body: bytes, at: float, times: int) -> None:
        self.body = body
        self.at = at  # seconds of the broker's clock, the last time
        self.times = times


class Undelivered(OrderedDict[str, bytes]):
    """Messages that wait, in their order, which is that of a plain dict unless some were
    given back: then these were moved, and a plain dict does not know of it."""

    has_moved = False


class ReliableQueue:
    """One queue; both kinds of messages in the order in which they come next."""

    def __init__(self) -> None:
        # A plain dict would walk over all that has left its head to find the first.
        self.undelivered = Undelivered()
        self.delivered: OrderedDict[str, Delivered] = OrderedDict()
        self.last: Id = (0, 0)

    def next_ids(self, count: int, wall_ms: int) -> list[str]:
        """Return the ids of messages that come now."""
        milliseconds, number = self.last
        if wall_ms > milliseconds:
            milliseconds, number = wall_ms, 0
        return [f"{milliseconds}-{number + n}" for n in range(1, count + 1)]

    def waiting_longest(self, count: int, before: float) -> list[str]:
        """Return the first messages that were handed out no later than `before`."""
        room = Room()
        some = room.take(self.delivered.items(), count, delivered_bytes)
        return [msg_id for msg_id, delivered in some if delivered.at <= before]


def body_bytes(item: tuple[str, bytes]) -> int:
    """Return the size of a message that no client has had."""
    return size_of(item[1])


def delivered_bytes(item: tuple[str, Delivered]) -> int:
    """Return the size of a message that was handed out."""
    return size_of(item[1].body)


class ReliableQueues:
    """All queues of RedisRQ."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, ReliableQueue] = {}
        self.messages = 0
        self.weight = Weight()
        self.freeing = Freeing()
        self.gone: Id = (0, 0)  # the last of all queues that are gone
        self.last: Id = (0, 0)  # that ever was

    def queue(self, key: bytes) -> ReliableQueue:
        """Return a queue; one that is not there yet goes on behind those that are gone,
        for an old acknowledgement must not be of a new message."""
        queue = self.by_key.get(key)
        if queue is None:
            queue = ReliableQueue()
            queue.last = self.gone
        return queue

    def apply(self, event: Event) -> None:
        """Apply an event, once or again."""
        match event:
            case Deleted():
                self._delete(event.key)
            case Cleared():
                self._clear(event)
            case _:
                self._change(event)

    def _change(self, event: Pushed | Popped | Acked | Named) -> None:
        queue = self.by_key.get(event.key)
        if queue is None:
            queue = self.by_key[event.key] = self.queue(event.key)
        match event:
            case Pushed():
                self._push(queue, event)
            case Popped():
                _pop(queue, event)
            case Acked():
                self._ack(queue, event.ids)
            case Named():
                self._name(queue, id_of(event.last))

    def _name(self, queue: ReliableQueue, last: Id) -> None:
        queue.last = max(queue.last, last)
        self.last = max(self.last, last)

    def _push(self, queue: ReliableQueue, event: Pushed) -> None:
        undelivered, delivered = queue.undelivered, queue.delivered
        for msg_id, body in zip(event.ids, event.bodies, strict=True):
            if msg_id in undelivered or msg_id in delivered:
                continue
            undelivered[msg_id] = body
            self.messages += 1
            self.weight.add(body)
        self._name(queue, id_of(event.ids[-1]))

    def _ack(self, queue: ReliableQueue, ids: Sequence[str]) -> None:
        delivered = queue.delivered
        for msg_id in ids:
            if msg_id in delivered:
                self._drop(delivered.pop(msg_id).body)

    def _delete(self, key: bytes) -> None:
        queue = self.by_key.pop(key, None)
        if queue is not None:
            self.gone = max(self.gone, queue.last)
            self._free(queue)

    def _clear(self, cleared: Cleared) -> None:
        self.gone = self.last = max(self.last, id_of(cleared.last))
        by_key, self.by_key = self.by_key, {}
        self.freeing.add(by_key, lambda: self._free(by_key.popitem()[1]))

    def _free(self, queue: ReliableQueue) -> None:
        """Count the messages of a queue until they are freed."""
        undelivered, delivered = queue.undelivered, queue.delivered
        self.freeing.add(undelivered, lambda: self._drop(undelivered.popitem()[1]))
        self.freeing.add(delivered, lambda: self._drop(delivered.popitem()[1].body))

    def _drop(self, body: bytes) -> None:
        self.messages -= 1
        self.weight.drop(body)

    def put_away(self, key: bytes, msg_id: str, body: bytes, place: Place) -> None:
        """Note that a body lies in a file now, if its message is there and has it."""
        queue = self.queue(key)
        delivered = queue.delivered.get(msg_id)
        if queue.undelivered.get(msg_id) is body:
            queue.undelivered[msg_id] = place
        elif delivered is not None and delivered.body is body:
            delivered.body = place
        else:
            return
        self.weight.drop(body)
        self.weight.add(place)


def _pop(queue: ReliableQueue, event: Popped) -> None:
    undelivered, delivered, at = queue.undelivered, queue.delivered, event.at
    if not all(event.times):
        _put_back(queue, event.ids)
        return
    for msg_id, times in zip(event.ids, event.times, strict=True):
        if msg_id in delivered:  # handed out before: now it is the last of these
            again = delivered.pop(msg_id)
            delivered[msg_id] = Delivered(again.body, at, times)
        elif msg_id in undelivered:
            delivered[msg_id] = Delivered(undelivered.pop(msg_id), at, times)
    if not undelivered:
        undelivered.has_moved = False


def _put_back(queue: ReliableQueue, ids: Sequence[str]) -> None:
    """Put messages back, each in its place: before all that came later."""
    undelivered, delivered = queue.undelivered, queue.delivered
    back = [msg_id for msg_id in ids if msg_id in delivered]
    if not back:
        return
    last = max(map(id_of, back))
    earlier = list(takewhile(lambda each: id_of(each) < last, undelivered))
    for msg_id in back:
        undelivered[msg_id] = delivered.pop(msg_id).body
    undelivered.has_moved = len(undelivered) > len(back)
    for msg_id in sorted([*back, *earlier], key=id_of, reverse=True):
        undelivered.move_to_end(msg_id, last=False)


def begin_of(size: int, start: int) -> int:
    """Return where a page of `size` items begins, counted from the end below 0; past the
    end if it is none.

    >>> begin_of(4, -2), begin_of(4, 1), begin_of(4, 9), begin_of(4, -9)
    (2, 1, 9, 4)
    """
    begin = start if start >= 0 else size + start
    return begin if begin >= 0 else size


def page(
    table: OrderedDict[str, Item], start: int, count: int
) -> Iterator[tuple[str, Item]]:
    """Give the items of a page, which is walked to from the end that is nearer. As a
    plain dict a table has the same order, unless something was moved in it, and that is
    walked in a 25th of the time.

    >>> table = OrderedDict(a=1, b=2, c=3, d=4)
    >>> list(page(table, 1, 2)), list(page(table, -2, 9)), list(page(table, 9, 1))
    ([('b', 2), ('c', 3)], [('c', 3), ('d', 4)], [])
    """
    begin = begin_of(len(table), start)
    behind = len(table) - begin - count
    has_moved = isinstance(table, Undelivered) and table.has_moved
    walk = iter(table) if has_moved else dict.__iter__(table)
    keys: Iterable[str] = islice(walk, begin, begin + count)
    if behind < begin:
        behind = max(0, behind)
        last = max(0, len(table) - begin)
        walk_back = reversed(table) if has_moved else dict.__reversed__(table)
        from_end = islice(walk_back, behind, max(behind, last))
        keys = reversed(list(from_end))
    return ((key, table[key]) for key in keys)


_SLICE = 200


def events_of(queues: ReliableQueues) -> Iterator[Iterable[Event]]:
    """Give the events that make the queues what they are, some at a time.

    A key may be deleted before its slice. Its line, which is read over the snapshot, then
    finds no queue, and does not tell its last id; so that the ids of the next one go on
    behind it, the first event tells the last of all, of keys that live as well.
    """
    yield [Cleared(text_of(queues.last))]
    for key in list(queues.by_key):
        queue = queues.by_key.get(key)
        if queue is None:
            continue
        yield [Named(key, text_of(queue.last))]
        # What was handed out comes first, in its order; then what no client has had. Both
        # are listed at one moment: what changes sides between two would be in neither.
        handed_out, waits = _keys(queue.delivered), _keys(queue.undelivered)
        for ids in _slices(handed_out):
            yield _delivered(key, queue, ids)
        for ids in _slices(waits):
            yield _undelivered(key, queue, ids)


def _keys(table: OrderedDict[str, Item]) -> Sequence[str]:
    """Return the keys of a table, as a plain dict gives them if it can: see `page`."""
    has_moved = isinstance(table, Undelivered) and table.has_moved
    return list(table if has_moved else dict.__iter__(table))


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), _SLICE):
        yield ids[at : at + _SLICE]


def _delivered(key: bytes, queue: ReliableQueue, ids: Sequence[str]) -> Iterator[Event]:
    for msg_id in ids:
        delivered = queue.delivered.get(msg_id)
        if delivered is not None:
            yield Pushed(key, [msg_id], [delivered.body])
            yield Popped(key, [msg_id], [delivered.times], delivered.at)
        elif msg_id in queue.undelivered:  # it was given back since `ids` were listed
            yield Pushed(key, [msg_id], [queue.undelivered[msg_id]])


def _undelivered(
    key: bytes, queue: ReliableQueue, ids: Sequence[str]
) -> Iterator[Event]:
    """What was handed out since `ids` were listed is told as such: the line of that
    tells no body."""
    there = [msg_id for msg_id in ids if msg_id in queue.undelivered]
    if there:
        yield Pushed(key, there, [queue.undelivered[msg_id] for msg_id in there])
    yield from _delivered(key, queue, ids)
