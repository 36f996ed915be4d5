"""Moves bodies to disk while those in memory take more than their share of `maxmemory`.

A line holds its body all the same: until a snapshot names the file, a start finds the
body there. So nothing is written in the journal when a body moves, and a file that no
snapshot names yet may be lost.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future

from rq.broker.desks.node import Node
from rq.broker.state import groups, job, reliable
from rq.broker.state.body import Place
from rq.broker.state.lines import Event
from rq.broker.store import bodies as files
from rq.broker.store.bodies import Bodies
from rq.logs import fields

SHARE = 0.5  # of `maxmemory`, for bodies in memory
BATCH = 4 * 1024 * 1024  # bytes of bodies that are written to one file
_SLICE = 0.002  # seconds of the loop
_MORE = 1.25  # by how much bodies have grown until all are looked at again
_AGAIN = 5.0  # seconds until a write that failed is tried again

PutAway = Callable[[bytes, Place], None]
Brought = tuple[bytes, PutAway]  # a body in memory, and what lets it lie in a file

log = logging.getLogger(__name__)


class Moving:
    """The bodies of one node that are on their way to disk."""

    def __init__(self, node: Node, bodies: Bodies, threads: Executor) -> None:
        self._node = node
        self._bodies = bodies
        self._threads = threads
        self._waiting: deque[Brought] = deque()
        self._bytes = 0  # of those that wait
        self._batch: list[Brought] = []  # that is being written
        self._writing: Future[list[Place]] | None = None
        self._all: Iterator[Iterable[Event]] | None = None  # that are looked at
        self._look_above = 0.0  # bytes of bodies in memory
        self._again_at = 0.0

    @property
    def _share(self) -> float:
        return SHARE * self._node.memory.limit

    @property
    def is_short(self) -> bool:
        """Whether what comes now is to move."""
        return self._node.body_bytes - self._bytes > self._share

    def take(self, event: Event) -> None:
        """See whether an event that came brought bodies that are to move: what came last
        is needed last."""
        kind = type(event)
        brings = kind is job.Added or kind is reliable.Pushed or kind is groups.Came
        if not brings or not self.is_short:
            return
        for body, put_away in _brought(self._node, event):
            if len(body) >= files.SMALLEST:
                self._waiting.append((body, put_away))
                self._bytes += len(body)

    # ---- at the start

    def go_on_now(self) -> None:
        """Write what waits, if it is enough for a file; no client is served yet. OSError:
        the disk takes nothing more."""
        if self._bytes >= BATCH:
            self._take_batch()
            self._put_away(
                self._bodies.keep_together([body for body, _ in self._batch])
            )

    # ---- while clients are served

    def go_on(self) -> bool:
        """Move some on; return whether some are on their way."""
        if self._writing is not None:
            if self._writing.done():
                self._written(self._writing)
            return True
        if time.monotonic() < self._again_at:
            return False
        if not self._waiting:
            self._look()
        elif self._bytes >= BATCH or self._all is None:
            self._take_batch()
            bodies = [body for body, _ in self._batch]
            self._writing = self._threads.submit(self._bodies.keep_together, bodies)
        else:
            self._look()
        return bool(self._waiting) or self._writing is not None or self._all is not None

    def _look(self) -> None:
        """Look for bodies that came before memory was short, for a moment; once over all,
        then again when they have grown."""
        held = self._node.body_bytes - self._bytes
        if held <= self._share * _MORE:
            self._all, self._look_above = None, 0.0
            return
        if self._all is None:
            if held <= self._look_above:
                return
            self._all = self._node.events_of_all()
        end = time.monotonic() + _SLICE
        while time.monotonic() < end and self._bytes < BATCH:
            some = next(self._all, None)
            if some is None:
                self._all, self._look_above = None, held * _MORE
                return
            for event in some:
                self.take(event)

    def _take_batch(self) -> None:
        self._batch = []
        left = BATCH
        while self._waiting and left > 0:
            first = self._waiting.popleft()
            self._batch.append(first)
            left -= len(first[0])
            self._bytes -= len(first[0])

    def _written(self, writing: Future[list[Place]]) -> None:
        self._writing = None
        if (error := writing.exception()) is not None:
            self._batch = []  # they are looked for again
            self._look_above, self._again_at = 0.0, time.monotonic() + _AGAIN
            log.error("bodies stay in memory: %s", fields(reason=error))
            return
        self._put_away(writing.result())

    def _put_away(self, places: list[Place]) -> None:
        """Note that the bodies of a batch lie in their file now, but those that are gone."""
        batch, self._batch = self._batch, []
        for (body, put_away), place in zip(batch, places, strict=True):
            put_away(body, place)

    def close(self) -> None:
        """End; what was not written stays in its lines."""
        if self._writing is not None:
            self._writing.exception()  # waits


def _brought(node: Node, event: Event) -> Iterator[Brought]:
    """Give the bodies of an event."""
    match event:
        case job.Added():
            yield event.body, functools.partial(node.jobs.put_away, event.job)
        case reliable.Pushed():
            put_away = node.reliable.put_away
            for msg_id, body in zip(event.ids, event.bodies, strict=True):
                yield body, functools.partial(put_away, event.key, msg_id)
        case groups.Came():
            put = functools.partial(node.groups.put_away, event.queue, event.number)
            yield event.contents, put
