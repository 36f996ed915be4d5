"""Keeps the index up with the journals: which queues there are, who is read next.

What is true at all times

- The file holds, for each queue, exactly the effect of the lines up to its place. A batch
  takes lines of many queues and is written whole, with their places (`store`).
- A queue is read in slices, each in its turn: none waits for the backlog of another one, and
  what is read for the first time does not hide what happens now.
- A queue that reads from its beginning has no rows: they are removed first, in pieces, and
  its place says so meanwhile. So a kill in between is no special case.

Queues that are away (a disk that is not mounted) keep their rows; those go when the queue
was deleted, which `config/begun.json` tells, or when they are too old. That a queue hides
other params than before makes the whole index again: copies of its messages, which other
queues hold, hide them too."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from rq import config
from rq.config import queues
from rq.config.begun import Begun
from rq.errors import Damaged, RQError
from rq.index import live, schema
from rq.index.batch import Batch, Source
from rq.index.follow import Follower, Moved, Word
from rq.index.retention import Retention
from rq.index.store import Place, Store
from rq.index.word import Said
from rq.layout import Root
from rq.proc import locks
from rq.rpc import client

SLICE = 5000  # lines of a queue in a batch
MOST = 20_000  # lines of a batch
LOOK = 5.0  # seconds between looks at all queues, at least …
SHARE = (
    500  # … of thousands they take one part in so many of the time: owners tell of news
)
PATIENCE = 1.0  # seconds until an owner is asked for what it has not said
MINUTE = 60.0
_ASK = 0.5  # seconds that an owner has for its answer
_CHUNKS = 20  # of a deleted queue that go at a look
_ROOM = 2  # times `min_free_bytes` have to be free: owners go on with one

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Queue:
    """A queue that is followed."""

    number: int
    follower: Follower
    is_clear: bool  # no rows are left from another journal
    ask_at: float | None = None  # when its owner is asked for its word (monotonic)
    first: int = 0  # the oldest event of its history, as far as that was acted on
    problem: str = ""  # why it is not read


@dataclass(slots=True)
class Progress:
    """How much of the journals is to be read, in bytes."""

    left: int = 0
    total: int = 0

    @property
    def read(self) -> float:
        return 1.0 - self.left / self.total if self.total else 1.0


@dataclass(slots=True)
class _Hides:
    """Which params each queue hides, as its config says now."""

    by_queue: dict[str, frozenset[str]] = field(default_factory=dict)
    stamps: dict[str, config.Stamp | None] = field(default_factory=dict)

    def look(self, root: Root, name: str) -> frozenset[str]:
        """Return what a queue hides; what cannot be read now is as it was."""
        stamp = config.stamp(f"{root.queues}/{name}/config.json")
        if name not in self.stamps or self.stamps[name] != stamp:
            queue = root.queue(name)
            try:
                hidden = config.read_queue(queue).index.get("hide", ())
                self.by_queue[name] = frozenset(hidden)
                self.stamps[name] = stamp
            except (RQError, OSError):
                self.by_queue.setdefault(name, frozenset())
        return self.by_queue[name]


class Keeper:
    """The index of a root, for the process that writes it."""

    def __init__(self, root: Root, *, days: float, limit: float, least: int) -> None:
        """`limit`: bytes of the index. `least`: bytes that owners want to be free."""
        self._root = root
        self._days, self._limit, self._least = days, limit, least
        self._store = _opened(root)
        self._retention = Retention(self._store)
        self._begun = Begun(root)
        self._hides = _Hides()
        self._queues: dict[str, Queue] = {}
        self._due: dict[str, None] = {}  # queues that have something to read, in turn
        self._look_at = self._old_at = 0.0
        self._is_full = False
        self._progress = Progress()
        self._has_more_old = False
        self._is_built = bool(self._store.facts().get("built"))

    def close(self) -> None:
        self._store.close()

    # ---- what happens

    def hear(self, said: Said) -> None:
        """Take the word of an owner."""
        queue = self._queues.get(said.queue)
        if queue is None:
            self._look_at = 0.0
            return
        queue.follower.word = Word(
            journal=said.journal, seq=said.seq, segment=said.segment
        )
        queue.ask_at = None
        self._due.setdefault(said.queue)

    def hear_of_config(self, name: str) -> None:
        """Look at all now if a queue, whose config has changed, hides something else."""
        before = self._hides.by_queue.get(name, frozenset())
        if name in self._queues and self._hides.look(self._root, name) != before:
            self._look_at = 0.0

    def make_again(self) -> None:
        """Remove what is there, and read all journals."""
        log.info("the index is made again")
        self._store.close()
        schema.remove(self._root)
        self._store = _opened(self._root)
        self._retention = Retention(self._store)
        self._queues.clear()
        self._due.clear()
        self._look_at, self._is_built = 0.0, False

    def step(self) -> float:
        """Do some of what is to be done; return the seconds until there is more."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at, began = now + LOOK, time.thread_time()
            self._look()
            if self._look_at:
                self._look_at = now + _pause(LOOK, began)
        if not self._has_room():
            return LOOK
        self._ask_owners(now)
        self._read_some()
        self._remove_old(now)
        if self._due or self._has_more_old:
            return 0.0
        self._be_current()
        return max(0.0, self._next_at() - time.monotonic())

    def _next_at(self) -> float:
        asks = [queue.ask_at for queue in self._queues.values() if queue.ask_at]
        return min([self._look_at, *asks])

    def _be_current(self) -> None:
        """Say that all is read that can be."""
        if not self._is_built:
            self._is_built = True
            self._store.note(built=1, as_of=time.time())
        beat = schema.beat(self._root)
        if not beat.exists():
            beat.touch(0o600)
        os.utime(beat)

    def _has_room(self) -> bool:
        room = os.statvfs(schema.place(self._root).parent)
        is_full = room.f_bavail * room.f_frsize < self._least * _ROOM
        if is_full and not self._is_full:
            log.warning("the disk is nearly full: the index waits until there is room")
        self._is_full = is_full
        return not is_full

    # ---- which queues there are

    def _look(self) -> None:
        """See which queues there are, and which of them have something new."""
        held = self._store.queues()
        on_disk = _listed(self._root)
        if self._hide_others(on_disk, held):
            held = {}
        for name in on_disk:
            if name not in self._queues:
                self._follow(name, held.get(name))
            if self._queues[name].follower.has_changed():
                self._due.setdefault(name)
        for name in held.keys() - set(on_disk):
            self._queues.pop(name, None)
            self._due.pop(name, None)
            self._forget_deleted(name, held[name][0])
        if not self._is_built:
            self._measure()

    def _hide_others(self, names: Sequence[str], held: Iterable[str]) -> bool:
        """Note what queues hide; whether the index was made again for that."""
        kept = orjson.loads(str(self._store.facts().get("hides", "{}")))
        hides = {name: hidden for name, hidden in kept.items() if name not in names}
        for name in names:
            if hidden := self._hides.look(self._root, name):
                hides[name] = sorted(hidden)
        if hides == kept:
            return False
        is_late = any(hides.get(name) != kept.get(name) for name in held)
        if is_late:
            self.make_again()
        self._store.note(hides=orjson.dumps(hides).decode())
        return is_late

    def _follow(self, name: str, held: tuple[int, Place] | None) -> None:
        number, place = held or (self._store.number(name), Place())
        queue = self._root.queue(name)
        follower = Follower(queue.journal_dir, place, queue.parked)
        self._queues[name] = Queue(number, follower, place.journal is not None)

    def _forget_deleted(self, name: str, number: int) -> None:
        """Remove the rows of a queue that a person has deleted, some at a time."""
        try:
            if self._begun.has(name):
                return  # it is away
        except RQError:
            return
        for _ in range(_CHUNKS):
            if not self._retention.clear(number):
                self._retention.forget(number)
                return

    def _measure(self) -> None:
        """See how much is to be read."""
        self._progress = Progress()
        for queue in self._queues.values():
            try:
                left, total = queue.follower.remaining()
            except OSError:
                continue
            self._progress.left += left
            self._progress.total += total

    # ---- reading

    def _read_some(self) -> None:
        """Read a batch: a slice of each queue that has something, in its turn."""
        batch, places = self._store.batch(), dict[int, Place]()
        for name in [*self._due]:
            queue = self._queues[name]
            if not self._clear(queue):
                continue
            del self._due[name]
            before = queue.follower.at
            if self._read(name, queue, batch):
                self._due[name] = None
            if queue.follower.at != before:
                places[queue.number] = queue.follower.at
            if batch.lines >= MOST:
                break
        if places:
            self._write(batch, places)

    def _write(self, batch: Batch, places: dict[int, Place]) -> None:
        facts = {"as_of": time.time(), "read": self._progress.read}
        try:
            self._store.write(batch, places, facts)
        except sqlite3.Error:
            self._queues.clear()  # they have gone on; the file has not
            self._due.clear()
            self._look_at = 0.0
            raise

    def _clear(self, queue: Queue) -> bool:
        """Remove rows of a journal that is no more; return whether none is left."""
        if not queue.is_clear:
            queue.is_clear = not self._retention.clear(queue.number)
        return queue.is_clear

    def _read(self, name: str, queue: Queue, batch: Batch) -> bool:
        """Read a slice of a queue; return whether there is more."""
        source = Source(queue.number, name, self._hides.by_queue)
        try:
            if queue.follower.at.journal is None and (begun := queue.follower.begun()):
                live.add(batch, source, self._root.queue(name), begun)
            if self._take(source, queue.follower, batch):
                return True
        except Moved:
            log.warning("queue %s is not as it was read: it is read again", name)
            self._start_again(queue)
            return True
        except FileNotFoundError:  # sealed under another name, meanwhile
            queue.follower.look_again()
        except (Damaged, OSError, ValueError) as error:
            self._say_problem(name, queue, str(error))
        if queue.follower.has_tail and queue.ask_at is None:
            queue.ask_at = time.monotonic() + PATIENCE
        return False

    def _take(self, source: Source, follower: Follower, batch: Batch) -> bool:
        for number, record in enumerate(follower.read(), 1):
            batch.take(source, record)
            if number >= SLICE:
                return True
        return False

    def _start_again(self, queue: Queue) -> None:
        """Read a queue from its beginning: first its rows go."""
        queue.follower.at = Place()
        queue.is_clear = False
        self._store.place(queue.number, Place())

    def _say_problem(self, name: str, queue: Queue, problem: str) -> None:
        if problem != queue.problem:
            log.error("queue %s is not read on: %s", name, problem)
        queue.problem = problem

    def _ask_owners(self, now: float) -> None:
        """Ask owners for the word that they have not said, or that was lost."""
        for name, queue in self._queues.items():
            if queue.ask_at is None or now < queue.ask_at:
                continue
            queue.ask_at = None
            directory = self._root.queue(name)
            try:
                if not locks.is_locked(directory.lock):
                    continue
                _, detail = client.ask(directory.socket, "detail", timeout=_ASK)
                queue.follower.word = Word(
                    journal=str(detail["journal_id"]), seq=int(detail["seq"])
                )
                self._due.setdefault(name)
            except (RQError, OSError, LookupError, TypeError, ValueError):
                queue.ask_at = now + LOOK

    # ---- what leaves it

    def _remove_old(self, now: float) -> None:
        if now < self._old_at and not self._has_more_old:
            return
        self._old_at, began = now + MINUTE, time.thread_time()
        old = self._retention.remove_old(self._days, time.time())
        self._has_more_old = self._retention.shrink(self._limit) or old
        for queue in self._queues.values():
            first = queue.follower.first()
            if first > queue.first:
                queue.first = first
                self._retention.silence(queue.number, first)
        self._old_at = now + _pause(MINUTE, began)


def _pause(least: float, began: float) -> float:
    """Return the seconds until a look that began at this time of the processor is made again."""
    return max(least, (time.thread_time() - began) * SHARE)


def _opened(root: Root) -> Store:
    """Open the index; what is damaged, or of another version, makes room for a new one."""
    try:
        store = Store(root)
        store.check()
    except (Damaged, sqlite3.DatabaseError) as error:
        log.warning("the index is made again: %s", error)
        schema.remove(root)
        store = Store(root)
    return store


def _listed(root: Root) -> list[str]:
    """Return the queues that are there, in order."""
    above = f"{root.queues}/"  # as text: there may be thousands
    every = sorted(queues.names_of(root))
    return [name for name in every if not os.path.islink(above + name)]
