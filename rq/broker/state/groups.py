"""The queues of bananaq: events that live for a while, and groups of consumers, each of
which has every event once. Pure.

The pointer of a group says up to which event it has looked; it stays when that event is
gone, for else the group would have events again that it is done with.

A group that has nothing in progress, in a queue without a live event up to its pointer, is
as good as none: one that is not there begins with the oldest live event, too. Such a group
goes at the next tick, or memory would fill with groups for ever. There is no line for that:
it follows from what is there. So reading lines lets no group go, for the events of a queue
are read one by one, and some that were over may live again (`expire_from`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from sortedcontainers import SortedDict, SortedSet

from rq.broker.state.body import Place, Weight
from rq.broker.state.deadlines import Deadline, Deadlines
from rq.broker.state.freeing import Freeing


class Came(NamedTuple):
    """An event came into a queue."""

    queue: bytes
    number: int  # microseconds, and no other event has the same
    expires: int  # microseconds of the broker's clock
    contents: bytes


class Got(NamedTuple):
    """A group was handed an event."""

    queue: bytes
    group: bytes
    number: int
    until: float  # seconds of the broker's clock; 0: it is done with it


class Done(NamedTuple):
    """A group is done with an event."""

    queue: bytes
    group: bytes
    number: int


class Flushed(NamedTuple):
    """All events of a queue are gone up to one."""

    queue: bytes
    number: int


class Pointer(NamedTuple):
    """Up to where a group has looked, of events that are gone too."""

    queue: bytes
    group: bytes
    number: int


class Last(NamedTuple):
    """The last event that ever was."""

    number: int


Event = Came | Got | Done | Flushed | Pointer | Last

GROUPS_AT_ONCE = 2000  # that are looked at in a tick

# An event of a queue is over, or has been with a group for too long.
Wake = Deadline[tuple[bytes, bytes | None, int]]


def text_of(event: Came) -> str:
    """Return the id of an event as clients see it."""
    return f"{event.number}_{event.expires}"


class Group:
    """A group of consumers at one queue."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.pointer = 0
        self.in_progress: dict[int, Wake] = {}  # number: until when
        self.redo: SortedSet[int] = SortedSet()  # given back, to be given first

    def until(self, number: int) -> float | None:
        """Return until when the group has an event, long ago if it is given back; None:
        it has not."""
        wake = self.in_progress.get(number)
        if wake is not None:
            return wake.at
        return 0.001 if number in self.redo else None


_NO_COUNTS = dict.fromkeys(("total", "inprogress", "redo", "done", "available"), 0)


class EventQueue:
    """A queue: its live events by number, and its groups."""

    def __init__(self) -> None:
        self.events: SortedDict[int, Came] = SortedDict()
        self.ends: dict[int, Wake] = {}  # of the events
        self.weight = Weight()
        self.groups: dict[bytes, Group] = {}
        # By event: who may be handed it again. There may be many groups.
        self.redo: dict[int, set[Group]] = {}
        # No group that might go has a pointer below: most events that are over let no
        # group go, and must not look at all of them.
        self.lowest: float = inf

    @property
    def first(self) -> float:
        """The number of the oldest live event; infinite if there is none."""
        return self.events.keys()[0] if self.events else inf

    def may_go(self, group: Group) -> bool:
        """Whether a group is as good as none."""
        is_idle = not (group.in_progress or group.redo)
        return is_idle and group.pointer < self.first

    def next_for(self, name: bytes) -> Came | None:
        """Return the event that a group is handed next."""
        group = self.groups.get(name)
        if group is not None and group.redo:
            return self._event(group.redo[0])
        events = self.events
        at = events.bisect_right(group.pointer if group else 0)
        if at == len(events):
            return None
        event: Came = events.peekitem(at)[1]
        return event

    def _event(self, number: int) -> Came:
        event: Came = self.events[number]
        return event

    def give_back(self, group: Group, number: int) -> None:
        """Make an event ready for a group again."""
        group.redo.add(number)
        self.redo.setdefault(number, set()).add(group)

    def counts(self, name: bytes) -> dict[str, int]:
        """Return how many events there are for a group, by how they stand."""
        group = self.groups.get(name)
        if group is None:
            total = len(self.events)
            return {**_NO_COUNTS, "total": total, "available": total}
        new = len(self.events) - self.events.bisect_right(group.pointer)
        live = sum(map(self.events.__contains__, group.in_progress))  # in C
        return {
            "total": len(self.events),
            "inprogress": len(group.in_progress),
            "redo": len(group.redo),
            "done": len(self.events) - new - live - len(group.redo),
            "available": new + len(group.redo),
        }


class Sweep(NamedTuple):
    """The groups of a queue that are being looked at: whether they may go."""

    name: bytes
    queue: EventQueue
    left: Iterator[bytes]


class EventQueues:
    """All queues of bananaq."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, EventQueue] = {}
        self.last = 0
        self.events = 0
        self.weight = Weight()
        self.groups = 0
        self.held = 0  # events that a group has, or has given back
        self.freeing = Freeing()
        self.deadlines: Deadlines[Wake] = Deadlines()
        # Queues, and which of their groups may have to go; None: all.
        self.leaving: dict[tuple[bytes, bytes | None], None] = {}
        self._sweep: Sweep | None = None

    # ---- looking

    def next_number(self, wall_us: int) -> int:
        """Return the number of an event that comes now."""
        return max(wall_us, self.last + 1)

    def expire_from(self, at: float) -> None:
        """End no event of those that are there before `at`."""
        for queue in self.by_name.values():
            for end in queue.ends.values():
                if end.at < at:
                    self.deadlines.move(end, at, at)

    def apply(self, event: Event) -> None:
        """Apply an event, once or again."""
        if isinstance(event, Last):
            self.last = max(self.last, event.number)
            return
        queue = self.by_name.get(event.queue)
        kind = type(event)
        if queue is None:
            if kind is Done or kind is Flushed:
                return  # the queue is gone, with all of that kind
            queue = self.by_name[event.queue] = EventQueue()
        if kind is Got:  # these two are most, and patterns cost more
            self._get(queue, event)  # type: ignore[arg-type]
        elif kind is Done:
            self._done(queue, event)  # type: ignore[arg-type]
        else:
            self._change(queue, event)

    def _change(self, queue: EventQueue, event: Event) -> None:
        match event:
            case Came():
                self._come(queue, event)
            case Pointer():
                group = self._group(queue, event)
                group.pointer = max(group.pointer, event.number)
            case Flushed():
                self._flush(queue, event.number)
                self.leaving[event.queue, None] = None

    def _group(self, queue: EventQueue, event: Got | Pointer) -> Group:
        """Return the group of an event, made if it is not there yet; it looks at the
        oldest live event first."""
        group = queue.groups.get(event.group)
        if group is None:
            group = queue.groups[event.group] = Group(event.group)
            self.groups += 1
            self.leaving[event.queue, event.group] = None  # as after a start
        return group

    def _done(self, queue: EventQueue, event: Done) -> None:
        group = queue.groups.get(event.group)
        if group is None:
            return
        self._take_from(queue, group, event.number)
        if queue.may_go(group):
            self.leaving[event.queue, event.group] = None

    def _come(self, queue: EventQueue, event: Came) -> None:
        self.last = max(self.last, event.number)
        if event.number in queue.events:
            return
        queue.events[event.number] = event
        self.events += 1
        self.weight.add(event.contents)
        queue.weight.add(event.contents)
        end: Wake = Deadline((event.queue, None, event.number), event.expires / 1e6)
        queue.ends[event.number] = end
        self.deadlines.add(end, event.number / 1e6)

    def put_away(self, name: bytes, number: int, body: bytes, place: Place) -> None:
        """Note that contents lie in a file now, if their event is there."""
        queue = self.by_name.get(name)
        event = None if queue is None else queue.events.get(number)
        if queue is None or event is None or event.contents is not body:
            return
        queue.events[number] = event._replace(contents=place)
        for weight in (self.weight, queue.weight):
            weight.drop(body)
            weight.add(place)

    def _get(self, queue: EventQueue, event: Got) -> None:
        group = self._group(queue, event)
        group.pointer = max(group.pointer, event.number)
        if group.in_progress or group.redo:
            self._take_from(queue, group, event.number)
        if event.until:
            wake: Wake = Deadline((event.queue, event.group, event.number), event.until)
            group.in_progress[event.number] = wake
            self.held += 1
            self.deadlines.add(wake)

    def _take_from(self, queue: EventQueue, group: Group, number: int) -> None:
        """A group has an event no longer, nor is it given back."""
        queue.lowest = min(queue.lowest, group.pointer)
        wake = group.in_progress.pop(number, None)
        if wake is not None:
            self.deadlines.cancel(wake)
            self.held -= 1
        if number in group.redo:
            group.redo.remove(number)
            self.held -= 1
            queue.redo[number].discard(group)
            if not queue.redo[number]:
                del queue.redo[number]

    def _flush(self, queue: EventQueue, number: int) -> None:
        """Drop all events up to one: all, but when a snapshot knows newer ones."""
        if queue.events and queue.events.keys()[-1] > number:
            for each in list(queue.events.irange(maximum=number)):
                self._forget(queue, each)
            return
        self.events -= len(queue.events)
        self.weight.drop_all(queue.weight)
        ends = queue.ends
        self.freeing.add(queue.events, queue.events.popitem)
        self.freeing.add(ends, lambda: self.deadlines.cancel(ends.popitem()[1]))
        self.freeing.add(queue.redo, queue.redo.popitem)
        queue.events, queue.ends, queue.weight = SortedDict(), {}, Weight()
        queue.redo = {}
        for group in queue.groups.values():
            self.held -= len(group.redo)
            self.freeing.add(group.redo, group.redo.pop)
            group.redo = SortedSet()

    def _forget(self, queue: EventQueue, number: int) -> None:
        event: Came = queue.events.pop(number)
        self.deadlines.cancel(queue.ends.pop(number))
        self.events -= 1
        self.weight.drop(event.contents)
        queue.weight.drop(event.contents)
        for group in queue.redo.pop(number, ()):
            group.redo.remove(number)
            self.held -= 1

    def settle(self, now: float, most: int) -> list[bytes]:
        """End what is over by now, looking at up to `most`. Return the queues
        that have an event again for a group. None of this has a line: it follows from
        the time."""
        again: list[bytes] = []
        for wake in self.deadlines.due(now, most):
            name, group_name, number = wake.what
            queue = self.by_name.get(name)
            if queue is None:
                continue
            if group_name is not None:
                group = queue.groups[group_name]
                del group.in_progress[number]
                if number in queue.events:
                    queue.give_back(group, number)
                    again.append(name)
                else:
                    self.held -= 1
                    self.leaving[name, group_name] = None
            elif number in queue.events:
                for group in queue.redo.get(number, ()):
                    self.leaving[name, group.name] = None
                self._forget(queue, number)
                if queue.first > queue.lowest or not queue.events:
                    self.leaving[name, None] = None
        return again

    # ---- groups that go

    @property
    def lets_groups_go(self) -> bool:
        """Whether there are groups that may have to go."""
        return bool(self.leaving) or self._sweep is not None

    def let_groups_go(self) -> None:
        """Forget, of some groups, those that are as good as none, and empty queues."""
        left = GROUPS_AT_ONCE
        while left > 1 and self.lets_groups_go:
            if self._sweep is None:
                left -= 1
                self._sweep = self._begin(*self.leaving.popitem()[0])
            if self._sweep is not None:
                left -= self._go_on(self._sweep, left)

    def _begin(self, name: bytes, group_name: bytes | None) -> Sweep | None:
        queue = self.by_name.get(name)
        if queue is None:
            return None
        if group_name is not None:
            return Sweep(name, queue, iter((group_name,)))
        queue.lowest = inf
        return Sweep(name, queue, iter(list(queue.groups)))

    def _go_on(self, sweep: Sweep, most: int) -> int:
        """Look at up to `most` groups of a queue; return at how many."""
        queue, names = sweep.queue, list(islice(sweep.left, most))
        for name in names:
            group = queue.groups.get(name)
            if group is None:
                continue
            if queue.may_go(group):
                del queue.groups[name]
                self.groups -= 1
            elif not (group.in_progress or group.redo):
                queue.lowest = min(queue.lowest, group.pointer)
        if len(names) < most:
            self._sweep = None
            if not (queue.events or queue.groups):
                del self.by_name[sweep.name]
        return len(names)


_SLICE = 200


def events_of(queues: EventQueues) -> Iterator[Iterable[Event]]:
    """Give the events that make the queues what they are, some at a time.

    The groups of a queue come before its events. A group that goes in between is not
    missed: all up to its pointer is gone by then, and is not told. The other way round
    events would be told of, and no group that is done with them; after a night off they
    live again.
    """
    yield [Last(queues.last)]
    for name in list(queues.by_name):
        queue = queues.by_name.get(name)
        if queue is None:
            continue
        for group_name in list(queue.groups):
            if (group := queue.groups.get(group_name)) is not None:
                yield from _of_group(name, group_name, group)
        numbers = list(queue.events)
        for at in range(0, len(numbers), _SLICE):
            some = (queue.events.get(number) for number in numbers[at : at + _SLICE])
            yield [event for event in some if event is not None]


def _of_group(name: bytes, group_name: bytes, group: Group) -> Iterator[list[Event]]:
    """A group has an event again once its time is over; one whose time is over already
    is told as handed out until long ago."""
    yield [Pointer(name, group_name, group.pointer)]
    held = [*group.in_progress, *group.redo]
    for at in range(0, len(held), _SLICE):
        some = ((number, group.until(number)) for number in held[at : at + _SLICE])
        yield [
            Got(name, group_name, number, until)
            for number, until in some
            if until is not None
        ]
