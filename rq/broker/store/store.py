"""What makes a node's events durable, and finds them again: a journal and a snapshot.

The journal is the record. A snapshot lets the journal before it go: nothing else removes
a line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path

from rq.broker.desks.node import Node
from rq.broker.state import lines
from rq.broker.state.lines import Event
from rq.broker.store import place as files
from rq.broker.store.bodies import Bodies
from rq.broker.store.clock import CLOCK, Clock, Machine
from rq.broker.store.compaction import Compaction
from rq.broker.store.moving import Moving
from rq.broker.store.place import KeptMembers, Place, copied, new_node_id
from rq.broker.store.recovery import Recovery
from rq.errors import Damaged, DiskFailed, cause_of
from rq.journal import mark
from rq.journal.writer import Journal
from rq.logs import fields
from rq.proc import processes

CLOCK_SECONDS = 60.0  # between two of them

log = logging.getLogger(__name__)


class Store:
    """The journal and the snapshot of one node that runs."""

    def __init__(
        self,
        place: Place,
        dir_fd: int,
        journal: Journal,
        clock: Clock,
        compaction: Compaction,
        moving: Moving,
        bodies: Bodies,
    ) -> None:
        self.bodies = bodies
        self.clock = clock
        self._place = place
        self._dir_fd = dir_fd
        self._journal = journal
        self._clock_at = 0.0
        self._unused: list[str] = []  # files of bodies whose jobs are gone
        self._compaction = compaction
        self._moving = moving

    @property
    def settings_file(self) -> Path:
        """Where a node without a root keeps what is set."""
        return self._place.settings

    def new_node_id(self) -> str:
        """Give the node another id, durably; return it."""
        return new_node_id(self._dir_fd)

    def kept_members(self) -> KeptMembers:
        """Return who else belongs to the cluster. Damaged: it cannot be believed."""
        return files.read_members(self._place)

    def keeping(self, kept: KeptMembers) -> Callable[[], None]:
        """Return what keeps, called once and in a thread, who else belongs to the cluster.
        It writes into the directory that the node began with, wherever the path leads by
        then, and may end after the store. OSError: the disk does not take it."""
        dir_fd = os.dup(self._dir_fd)

        def keep() -> None:
            try:
                files.write_members(dir_fd, kept)
            finally:
                os.close(dir_fd)

        return keep

    # ---- events

    @property
    def durable_lines(self) -> int:
        """How many lines are durable, of all that the node has ever written."""
        return self._journal.position.seq

    @property
    def full(self) -> bool:
        """Whether `commit` has to come before more is taken."""
        return self._journal.full

    @property
    def no_space(self) -> str | None:
        """Why nothing new can be taken; None while it can."""
        return self._journal.no_space or self._compaction.no_space

    @property
    def is_ready(self) -> bool:
        """Whether the journal has all that it makes ahead."""
        return self._journal.is_ready

    @property
    def displaced(self) -> str | None:
        """Why nothing is written any more: the path of the directory leads elsewhere."""
        return self._journal.displaced

    def look_at_place(self) -> None:
        """See whether the directory is still where it was: `displaced` tells."""
        self._journal.look_at_place()

    def append(self, events: Iterable[Event], now: float) -> None:
        """Take events; they are durable after `commit`."""
        ts, is_short = int(now * 1e6), self._moving.is_short
        for event in events:
            record = lines.record(event)
            record["ts"] = ts
            self._journal.append(record)
            if is_short:
                self._moving.take(event)
        # The lines that let these go are among those that were appended.
        self._unused += self.bodies.take_unused()

    def write(self) -> bool:
        """Write what was taken, so that a kill -9 cannot lose it; False: not all is."""
        if not self._journal.pending:
            self._remove_unused()  # as of a body that was refused: no line is waited for
        return self._journal.write(last=False)

    def commit(self) -> None:
        """Make all durable that was taken; DiskFailed: try again later. Displaced: never
        again."""
        now = self.clock.now()
        if now >= self._clock_at:
            self._clock_at = now + CLOCK_SECONDS
            self._note_clock()
        self._journal.commit()
        self._remove_unused()

    def _remove_unused(self) -> None:
        if self._unused:
            self._compaction.remove(self.bodies, self._unused)
            self._unused = []

    def _note_clock(self) -> None:
        reading = self.clock.reading()
        ts = int(reading.now * 1e6)
        self._journal.append({"ts": ts, "ev": CLOCK, **reading.to_json()})

    # ---- the snapshot

    @property
    def snapshots(self) -> int:
        """How many were written since the start."""
        return self._compaction.snapshots

    def mind_snapshot(self, node: Node) -> bool:
        """Move a snapshot on, and bodies to disk; return whether one is on its way."""
        no_space = self.no_space is not None
        if no_space or not self.is_ready:
            self._journal.look_again()
        is_moving = not no_space and self._moving.go_on()
        return self._compaction.go_on(node) or is_moving

    def want_snapshot(self) -> None:
        """Begin a snapshot, however short the journal is."""
        self._compaction.want()

    # ---- the end

    def close(self) -> None:
        """Make all durable, and end. DiskFailed: what was not answered may be lost. One that
        is displaced writes no more: what lies at its path is another's."""
        self._compaction.close()
        self._moving.close()
        if self.displaced:
            os.close(self._dir_fd)
            return
        try:
            self._note_clock()
            self._journal.commit()
            self._close_journal()
        finally:
            os.close(self._dir_fd)

    def _close_journal(self) -> None:
        try:
            self._journal.close()
        except OSError as error:
            raise DiskFailed(
                f"the journal cannot be closed: {cause_of(error)}"
            ) from None


def open_store(
    place: Place, node: Node, threads: Executor, machine: Machine | None = None
) -> Store:
    """Read what a node's directory, which this process has taken, holds into `node`;
    `machine` has the clocks, if others than those of this one are to be used.

    Damaged: it cannot be believed, or a person must say first what it is. DiskFailed: it
    cannot be read or written.
    """
    try:
        return _opened(place, node, threads, machine or Machine(processes.boot_id()))
    except OSError as error:
        raise DiskFailed(f"{place.path} cannot be used: {cause_of(error)}") from None


def _opened(place: Place, node: Node, threads: Executor, machine: Machine) -> Store:
    if mark.is_elsewhere(place.journal_dir):
        raise Damaged(copied(place))
    dir_fd = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        bodies = Bodies(place.bodies)
        bodies.make()
        moving = Moving(node, bodies, threads)
        recovery = Recovery(place, bodies.place, moving)
        recovery.read(node)
        journal = recovery.begin(dir_fd, threads)
        bodies.begin()
    except BaseException:
        os.close(dir_fd)
        raise
    clock = Clock(recovery.clock, machine, recovery.latest)
    _hold_expiry(node, clock)
    compaction = Compaction(place, journal, clock, threads, recovery.bytes_behind)
    return Store(place, dir_fd, journal, clock, compaction, moving, bodies)


def _hold_expiry(node: Node, clock: Clock) -> None:
    """Expire nothing yet, when the time of day may be wrong."""
    if not clock.grace:
        return
    node.jobs.expire_from(clock.expiry_from)
    node.groups.expire_from(clock.expiry_from)
    log.warning(
        "by the time of day the machine was off for over a day: nothing expires yet; "
        "stop the broker if that is wrong, and set the time: %s",
        fields(off=round(clock.missed), seconds=round(clock.grace)),
    )
