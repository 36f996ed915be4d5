"""A node and its store in the process of a test: no clients, no sockets, no loop."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random, SystemRandom

from rq.broker.desks.node import Node
from rq.broker.store import place as place_of_node
from rq.broker.store.bodies import weight
from rq.broker.store.clock import Machine
from rq.broker.store.place import Place
from rq.broker.store.store import Store, open_store

HOUR = 3600.0


class KeptNode:
    """A node that takes commands and keeps their events, as the server does."""

    def __init__(
        self, path: Path, machine: Machine | None = None, random: Random | None = None
    ) -> None:
        """`machine` has the clocks; from `random` the ids of jobs are drawn."""
        self.place = Place(path)
        self.machine = machine
        self._random = random or SystemRandom()
        self.node = Node("ab" * 20, self._random)
        self.limit = self.node.memory.limit  # bytes of memory
        self._store: Store | None = None
        self._lock = -1

    @property
    def store(self) -> Store:
        assert self._store is not None, "it is not open"
        return self._store

    @property
    def now(self) -> float:
        return self.store.clock.now()

    def open(self) -> Node:
        """Read what lies there, and go on behind it."""
        self.node = Node("ab" * 20, self._random)
        self.node.memory.limit = self.limit
        self._lock = place_of_node.take(self.place)
        self._threads = ThreadPoolExecutor(1)
        try:
            self._store = open_store(self.place, self.node, self._threads, self.machine)
        except BaseException:
            self._leave()
            raise
        return self.node

    def write(self) -> None:
        """Give the node's events to the kernel."""
        self._append()
        self.store.write()

    def commit(self) -> None:
        """Make the node's events durable."""
        self._append()
        self.store.commit()

    def _append(self) -> None:
        events, self.node.events = self.node.events, []
        self.store.append(events, self.now)
        self.node.must_sync = False

    def add(self, body: bytes, *, queue: bytes = b"q", **given: float) -> str:
        """Take a job; return its id."""
        wall = int(self.machine.wall() if self.machine else self.now) * 1000
        times = {"ttl": HOUR, "delay": 0.0, "retry": 60.0, **given}
        if weight([body])[0]:
            (body,) = self.store.bodies.keep([body])
        added = self.node.desk.new(queue, body, now=self.now, wall_ms=wall, **times)
        self.node.emit(added, self.now)
        return added.job

    def snapshot(self) -> None:
        """Write a snapshot, and let the journal before it go."""
        before = self.store.snapshots
        self.store._compaction._bytes = -(10**12)  # so that it is worth it
        while self.store.snapshots == before:
            assert self.store.mind_snapshot(self.node) or self.store.snapshots
            self._settle()
        self._settle()

    def move(self) -> None:
        """Let bodies go to disk until those in memory have their share."""
        while self.store._moving.go_on():
            self._settle()

    def _settle(self) -> None:
        """Wait until the threads have done what they were asked."""
        self._threads.submit(int).result()

    @property
    def is_open(self) -> bool:
        return self._store is not None

    def tear(self, keep: int, *, junk: bool = False) -> None:
        """Let the disk lose what was written since the last sync, but for some bytes;
        with `junk` something else stands behind these."""
        journal = self.store._journal
        segment = journal._segments.current
        begin = min(segment.offset + keep, segment.offset + journal._placed)
        length = segment.offset + journal._placed - begin
        os.pwrite(segment.fd, (b"\xa5" if junk else b"\0") * length, begin)

    def crash(self) -> None:
        """End as kill -9 does: only what was written stays."""
        with contextlib.suppress(OSError):
            os.close(self.store._journal._segments.current.fd)
        os.close(self.store._dir_fd)
        writing, self._store = self.store._compaction._writing, None
        self._leave()
        if writing is not None:
            writing._file.close()

    def stop(self) -> None:
        """End cleanly."""
        self.store.close()
        self._store = None
        self._leave()

    def again(self) -> Node:
        """Crash, and start again."""
        self.crash()
        return self.open()

    def close(self) -> None:
        """Leave nothing open."""
        if self._store is not None:
            self.crash()

    def _leave(self) -> None:
        self._threads.shutdown()
        os.close(self._lock)

    def bodies(self) -> list[bytes]:
        """Return the bodies of all jobs, in the order of their creation."""
        jobs = self.node.jobs.by_id.values()
        return [job.body for job in sorted(jobs, key=lambda job: job.ctime)]
