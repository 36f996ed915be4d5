"""Producers and consumers at several brokers, which go on at another node when theirs is
gone, and note what they were answered."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from harness.broker import Refused
from harness.brokers import Nodes
from harness.waiting import wait_until

_PATIENCE = 60.0  # seconds until somebody must have been answered


class Anywhere:
    """A client that goes to the next node when one does not answer."""

    def __init__(self, nodes: Nodes, index: int) -> None:
        self._nodes = nodes
        self._index = index
        self._client = None

    def ask(self, *words):
        """Return the answer; None: a node was gone, and what it did is not known."""
        if self._client is None:
            self._client = wait_until(self._connected, _PATIENCE)
        try:
            return self._client.ask(*words)
        except (OSError, EOFError):
            self._client = None
            return None

    def _connected(self):
        self._index = (self._index + 1) % len(self._nodes.brokers)
        return self._nodes.brokers[self._index].client()


class Load:
    """Jobs of one queue that are added, handed out and acknowledged for as long as a
    test wants, up to `most` of each producer."""

    def __init__(self, nodes: Nodes, queue: str, options: str, most: int) -> None:
        self.added: set[str] = set()  # ids that a producer was answered
        self.handed: Counter[str] = Counter()  # how often each was handed out
        self.acked: set[str] = set()
        self.unsure: set[str] = set()  # acknowledged, and the answer is lost
        self._nodes = nodes
        self._queue = queue
        self._options = options.split()
        self._most = most
        self._is_over = self._is_empty = False
        self._producing: set[int] = set()  # producers that may still add a job

    def producer(self, index: int) -> None:
        self._producing.add(index)
        try:
            self._produce(Anywhere(self._nodes, index))
        finally:
            self._producing.discard(index)

    def _produce(self, client: Anywhere) -> None:
        for number in range(self._most):
            add = functools.partial(self._add, client, number)
            wait_until(lambda add=add: self._is_over or add(), _PATIENCE)

    def _add(self, client: Anywhere, number: int) -> bool:
        """Add a job; False: it was refused, as for as long as nodes are not linked."""
        job_id = client.ask("ADDJOB", self._queue, number, 3000, *self._options)
        if job_id is None or isinstance(job_id, Refused):
            return False
        self.added.add(str(job_id))
        return True

    def consumer(self, index: int) -> None:
        client, other = Anywhere(self._nodes, index), Anywhere(self._nodes, index + 1)
        while not self._is_empty:
            words = "GETJOB", "TIMEOUT", 200, "COUNT", 3, "FROM", self._queue
            jobs = client.ask(*words)
            for _, job_id, _ in [] if isinstance(jobs, Refused) else jobs or []:
                self.handed[job_id.decode()] += 1
                answer = other.ask("ACKJOB", job_id)
                if answer is None:
                    self.unsure.add(job_id.decode())
                elif isinstance(answer, int):
                    self.acked.add(job_id.decode())

    def no_more(self) -> None:
        """Let producers end, and return when the last answer to them is noted: a job
        that was added behind a test's back is none that it can wait for."""
        self._is_over = True
        wait_until(lambda: not self._producing, _PATIENCE)

    def end(self) -> None:
        """Let all end."""
        self._is_over = self._is_empty = True


@contextlib.contextmanager
def at_work(*loads: Load, each: int = 2) -> Iterator[None]:
    """Have so many producers and consumers of each load at work in the block."""
    told: list[Callable[[int], None]] = []
    for load in loads:
        told += [load.producer, load.consumer]
    threads = [
        threading.Thread(target=target, args=(index,))
        for target in told
        for index in range(each)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for load in loads:
            load.end()
        for thread in threads:
            thread.join(2 * _PATIENCE)
