"""One node of the broker: takes commands and timers, and returns outputs. Pure.

Nothing else goes in or out. No socket, clock, disk or randomness is inside: `now` is an argument, in seconds of the
broker's clock, and random numbers come from a generator that the caller gives. So a
test runs a cluster in one process, moves its clocks, and repeats any run by its seed.

How anything changes: a desk decides and emits an event. `emit` keeps the event for the
journal (`events`) and applies it at once. `apply` alone changes jobs, messages and
groups, live and when a start reads the journal, so a start finds what there was. Events
hold absolute values (when a job is due, not by how much later), so that applying one
twice, as when the journal repeats what a snapshot has, ends the same.

What is true at all times:

- The node sends nothing itself. It leaves outputs: `events`; `answers` to clients that
  waited; `letters` to other nodes. The server makes the events durable, and only then
  sends. So whatever a client or another node was told survives a crash.
- Two exceptions, and why they break no promise. An early letter carries a copy of a
  job, and may leave before the sync: the node that gets it vouches for its own disk
  alone. An event with `sync=False` may be lost in a power cut: either the next start
  decides the same again (a job has expired), or the job comes once more, which a job with
  a RETRY may.
- A client that is handed a job stands in `handed`, with a function that takes the job
  back. It is called if the kernel took no byte of the reply, and then the job is as it
  was.

What may happen:

- The process dies at any instant: what was not durable was not told.
- The disk fails: events wait, here and in the journal, until it works. Meanwhile
  letters past MOST_LETTERS are lost, as the network may lose any; those who need an
  answer ask again.
- A million jobs are due, or a thousand clients disconnect, at the same moment: `tick` does a
  slice of each kind, and `next_tick` is 0.0 until all is done. Clients are served in
  between.
- Memory is short. It is accounted, not measured: bytes of bodies, and a fixed number
  for each object, so that the answer costs nothing and is the same in each run. At
  level 1 new jobs are passed on to other nodes (`cannot_keep`); at level 2 nothing new
  is taken, after jobs that can never be handed out again were evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from random import Random
from typing import get_args

from rq.broker.cluster.messages import Letter, Message, NoPeers, Peers
from rq.broker.desks.group_desk import GroupDesk
from rq.broker.desks.job_desk import JobDesk
from rq.broker.desks.outlet import TakeBack
from rq.broker.desks.reliable_desk import ReliableDesk
from rq.broker.desks.replication import Replication
from rq.broker.desks.returning import HOLD
from rq.broker.state import groups, jobs, reliable
from rq.broker.state.deadlines import Alarm
from rq.broker.state.job import Event as JobEvent
from rq.broker.state.job import Put, Removed, State
from rq.broker.state.lines import Event
from rq.broker.state.traffic import Traffic
from rq.broker.state.waiters import AnyWaiters
from rq.resp import Value

MOST_LETTERS = 100_000  # that wait to leave
_AT_ONCE = 400  # jobs about which something is done in a turn
_TRIES = 200  # jobs that are looked at to make room
_TOMBS = 5_000  # ids of jobs gone that a look forgets: more than go in a second
ENTRY_BYTES = 600  # of memory that a job, or the like, takes beside its body
_RESTING_BYTES = 600  # that a queue takes which is forgotten, but by jobs handed out
_QUEUE_BYTES = 2560  # that a queue or a group takes, its name included
_COPIES_BYTES = 500  # what is known of a job's copies, or of one that is gone
_PLACE_BYTES = 300  # that the place of a body takes which lies in a file
_HELD_BYTES = 300  # that an event takes which a group has
_SHORT = 0.75  # of the limit: no copies of jobs are kept from here on
_FULL = 0.95  # nothing comes in
_GB = 1024 * 1024 * 1024
_OF_JOBS = frozenset(get_args(JobEvent))  # to look a kind up is quick
_OF_MESSAGES = frozenset(get_args(reliable.Event))


class Memory:
    """The limit of a node."""

    def __init__(self) -> None:
        self.limit = _GB  # bytes
        self.evicts = True  # jobs that can never be handed out again, when it is full

    def level(self, used: int) -> int:
        """Return 0, 1 when memory is short, or 2 when there is none left.

        >>> memory = Memory()
        >>> memory.limit = 100
        >>> memory.level(74), memory.level(75), memory.level(95)
        (0, 1, 2)
        """
        if used < _SHORT * self.limit:
            return 0
        return 2 if used >= _FULL * self.limit else 1


def _there(_client: int) -> bool:
    return True


class Node:
    """The state of a node, and what it gives out."""

    def __init__(self, node_id: str, random: Random) -> None:
        self.node_id = node_id
        self.peers: Peers = NoPeers()
        self.desk = JobDesk(self, random)
        self.messages = ReliableDesk(self)
        self.consumers = GroupDesk(self)
        self.jobs = self.desk.jobs
        self.replication = Replication(self, self.desk, random)
        self.reliable = self.messages.queues
        self.groups = self.consumers.queues
        self.traffic = Traffic(self.jobs, self.reliable, self.groups)
        self.memory = Memory()
        self.events: list[Event] = []  # to be made durable
        self.answers: list[tuple[int, Value]] = []  # to clients that waited
        # What clients were handed since the server looked.
        self.handed: list[tuple[int, TakeBack]] = []
        self.presence: Callable[[int], bool] = _there  # of a client
        self.letters: list[Letter] = []  # to other nodes
        self.must_sync = False  # before anything is answered or sent
        # Whether memory was full when that was looked at last; whether it may be by now.
        self._is_full = self._looks_again = False
        copies, federation = self.replication.copies, self.replication.federation
        self._all_waiters: Sequence[AnyWaiters] = (
            self.desk.waiters,
            self.messages.waiters,
            self.consumers.waiters,
        )
        self._alarm = Alarm(
            self.jobs.spreads.deadlines,
            self.jobs.deadlines,
            federation.deadlines,
            self.jobs.spreads.ends,
            copies.waiters.deadlines,
            self.desk.holding.deadlines,
            *(waiters.deadlines for waiters in self._all_waiters),
            self.groups.deadlines,
        )

    # ---- outputs

    def emit(self, event: Event, now: float, *, sync: bool = True) -> None:
        """Apply an event; `sync`: it is durable before anything is told."""
        self.events.append(event)
        if sync:
            self.must_sync = True
        self.traffic.take(event, now)
        self.apply(event, now)

    def answer(self, client: int, value: Value) -> None:
        """Answer a client that waited."""
        self.answers.append((client, value))

    def is_there(self, client: int) -> bool:
        """Whether a client that waits can still be answered."""
        return self.presence(client)

    def hand(self, client: int, take_back: TakeBack) -> None:
        """A client is handed something in its next answer."""
        self.handed.append((client, take_back))

    def send(self, to: str, message: Message, *, early: bool = False) -> None:
        """Write to another node; `early`: before what was emitted is durable. While
        nothing leaves, for the disk fails, some are lost, as any may be."""
        if len(self.letters) < MOST_LETTERS:
            self.letters.append(Letter(to, message, early))

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take a message of another node. From a node that is no member it has no
        effect."""
        if self.peers.is_member(sender):
            self.replication.take(sender, message, now)

    def emptied(self, queue: bytes, now: float) -> None:
        """The last job of a queue was handed out: more may come from another node."""
        if self.peers.size > 1:
            self.replication.federation.need(queue, now, emptied=True)

    def apply(self, event: Event, now: float) -> None:
        """Apply an event, once or again: live, and when the journal is read. It is
        called for each, so that it casts nothing."""
        kind = type(event)
        if kind in _OF_JOBS:
            self.jobs.apply(event, now)  # type: ignore[arg-type]
        elif kind in _OF_MESSAGES:
            self.reliable.apply(event)  # type: ignore[arg-type]
        else:
            self.groups.apply(event)  # type: ignore[arg-type]

    def begin(self, now: float) -> None:
        """All that there was is read."""
        self.jobs.begin(now)
        self.replication.copies.begin(now)

    def hold_once(self, now: float) -> None:
        """After a start, in a cluster: hold jobs that come at most once until the
        others had time to say that this disk is an old copy, and all that have copies
        until the others have told what became of them."""
        self.desk.holding.begin(self.peers.others, now)
        for job in [job for job in self.jobs.by_id.values() if job.comes_once]:
            self.jobs.hold(job, now + HOLD, now)

    def disown(self, now: float) -> None:
        """The disk is an old copy. A job that comes at most once may have come since: let
        it come no more. A job whose producer waits may have been promised since: keep it."""
        self.desk.withhold(now)
        producers = self.jobs.spreads.waiting.values()
        for job in self.jobs.by_id.values():
            if job.state is State.WAIT_REPL and job.job_id not in producers:
                due = self.desk.again(job.retry, now)
                self.emit(Put(job.job_id, due), now)

    def rename(self, node_id: str, now: float) -> None:
        """Be another node, with the same jobs."""
        before, self.node_id = self.node_id, node_id
        self.replication.copies.rename(before, now)

    def events_of_all(self) -> Iterator[Iterable[Event]]:
        """Give the events that make all what it is, some at a time."""
        yield from jobs.events_of(self.jobs)
        yield from reliable.events_of(self.reliable)
        yield from groups.events_of(self.groups)

    # ---- memory

    @property
    def size(self) -> tuple[int, int]:
        """How many jobs, messages and events live, and the bytes of bodies in memory."""
        jobs, messages, events = self.jobs, self.reliable, self.groups
        number = len(jobs.by_id) + messages.messages + events.events
        return number, self.body_bytes

    @property
    def body_bytes(self) -> int:
        """The bytes of all bodies that are in memory."""
        jobs, messages, events = self.jobs, self.reliable, self.groups
        return jobs.weight.bytes + messages.weight.bytes + events.weight.bytes

    @property
    def used_memory(self) -> int:
        """Bytes of memory that all takes, as it is accounted."""
        # Asked for each job that comes: no loop, and no property, is in it.
        jobs, messages, events = self.jobs, self.reliable, self.groups
        number = len(jobs.by_id) + messages.messages + events.events
        queues = len(jobs.queues) + len(messages.by_key) + len(events.by_name)
        of_jobs, of_messages, of_events = jobs.weight, messages.weight, events.weight
        bodies = of_jobs.bytes + of_messages.bytes + of_events.bytes
        placed = of_jobs.placed + of_messages.placed + of_events.placed
        others = _QUEUE_BYTES * (queues + events.groups) + _HELD_BYTES * events.held
        others += _RESTING_BYTES * len(jobs.resting)
        others += _COPIES_BYTES * len(jobs.spreads) + _PLACE_BYTES * placed
        return bodies + ENTRY_BYTES * number + others

    @property
    def memory_level(self) -> int:
        """How short memory is: 0, 1 or 2."""
        return self.memory.level(self.used_memory)

    @property
    def has_plenty(self) -> bool:
        """Whether less than half of the memory is used."""
        return self.used_memory < self.memory.limit / 2

    def is_full(self, now: float, more: int = 0) -> bool:
        """Whether nothing can come in that takes `more` bytes, after what may go for it
        has gone."""
        if self._has_room(more):
            return False
        if more <= self.memory.limit:  # else it could not help
            self._evict(more, _TRIES, now)
        return not self._has_room(more)

    def _has_room(self, more: int = 0) -> bool:
        used = self.used_memory
        return self.memory.level(used) < 2 and used + more <= self.memory.limit

    def _evict(self, more: int, most: int, now: float) -> None:
        """Remove jobs that never come again, those that were handed out first, of up to
        `most`, until there is room."""
        spent = self.jobs.spent
        while self._may_evict and most and not self._has_room(more):
            most -= 1
            job = self.jobs.by_id.get(spent.popitem(last=False)[0])
            if job is not None and job.is_spent:
                self.emit(Removed((job.job_id,), "evicted"), now, sync=False)

    @property
    def _may_evict(self) -> bool:
        return self.memory.evicts and bool(self.jobs.spent)

    def takes_group(self, queue: bytes, group: bytes, now: float) -> bool:
        """Whether a group of a queue is there, or can be kept."""
        there = self.groups.by_name.get(queue)
        return there is None or group in there.groups or not self.is_full(now)

    def cannot_keep(self) -> str | None:
        """Return why no new job can be kept; None: it can."""
        if self.jobs.leaving:
            return "I'm leaving the cluster"
        return "I'm out of memory" if self.memory_level else None

    # ---- clients that wait

    def hung_up(self, client: int, now: float) -> None:
        """A client is gone."""
        for waiters in self._all_waiters:
            waiters.remove(client)
        self.replication.copies.hung_up(client, now)

    def unblock(self, client: int, answer: Value | None) -> bool:
        """End the wait of a client, with an answer or, if that is None, with what it
        gets when its time is over; False: it does not wait."""
        for waiters in self._all_waiters:
            if waiters.remove(client) is not None:
                self.answer(client, waiters.nothing if answer is None else answer)
                return True
        return False

    @property
    def blocked(self) -> int:
        """How many clients wait."""
        copies = len(self.replication.copies.waiters)
        return copies + sum(len(waiters) for waiters in self._all_waiters)

    # ---- time

    def next_tick(self) -> float | None:
        """Return when `tick` may have something to do; None: never."""
        jobs, messages, groups = self.jobs, self.reliable, self.groups
        if jobs.freeing.left or messages.freeing.left or groups.freeing.left:
            return 0.0
        if self.replication.telling.goes_on or self.desk.has_released:
            return 0.0
        if jobs.spreads.left or groups.lets_groups_go:
            return 0.0
        if self.desk.unserved or self.messages.unserved or self.consumers.unserved:
            return 0.0
        if any(waiters.is_clearing for waiters in self._all_waiters):
            return 0.0
        if self._is_full and self._may_evict:
            return 0.0
        at = self._alarm.at
        if self._looks_again:
            at = min(at, self.desk.look_at)
        return None if at == inf else at

    def tick(self, now: float, most: int = _AT_ONCE) -> None:
        """Do what is due by now, for `most` jobs at a time."""
        first = self.next_tick()
        if first is not None and first <= now:  # as in few turns
            self._go_on(now, most)
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """Forget in slices what may be forgotten: unused queues; while memory is short, ids
        of jobs that are gone; while it is full, jobs that never come again. There is one
        more look after a client's command, and more as long as memory is full; an idle node
        is not woken for it."""
        if self.desk.looks(now):
            self.desk.look(now)
            if level := self.memory_level:
                self.jobs.spreads.forget_early(_TOMBS)
            self._is_full = level == 2
            self._looks_again = self._is_full or self.desk.looks(now)
        else:
            self._looks_again = True
        if self._is_full:
            self._evict(0, _AT_ONCE, now)
            self._is_full = self.memory_level == 2

    def _go_on(self, now: float, most: int) -> None:
        self.desk.tick(now, most)
        self.replication.tick(now, most)
        self.consumers.tick(now, most)
        self.reliable.freeing.go_on()
        self.messages.tick(now)
        for waiters in self._all_waiters:
            waiters.clear_some()
            for client in waiters.ended(now):
                self.answer(client, waiters.nothing)
        self._alarm.look()
