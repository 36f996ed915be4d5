"""When the process of a queue may end because it has nothing to do: `ROOMS` has a row for
each room that could have, and says when it has next.

A row gives the moment (epoch seconds) at which its room acts without being asked, NOW while
it is busy or must hear of something, and None when nothing is ahead. What comes within a
minute keeps the process; the nearest later moment is when the supervisor starts it again.
What comes from outside needs no row: a request, a file in new/, a changed config reach the
listening socket, which the supervisor holds meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rq.config.notices import Matter
from rq.config.parked import Parked
from rq.queues.asking.asker import Asker
from rq.queues.control.connections import Connections
from rq.queues.housekeeping import HOUR, RETAINED, TICK, Housekeeping
from rq.queues.leases.desk import Desk
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.owner.owner import Owner
from rq.words.states import HASHED, State

NOW = 0.0
SOON = 60.0  # seconds; what lies ahead so near is waited for
SPREAD = 600  # seconds over which the hourly chores of all queues are spread
CHORES = "chores"
LONGEST = 600.0  # seconds of nothing to do, of a queue that is woken often
OFTEN = 4  # times that it had waited to be parked: woken sooner, it waits twice as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The rooms of a queue's process that may have something ahead."""

    owner: Owner
    leases: Desk
    asker: Asker
    checkpoints: Checkpoints
    housekeeping: Housekeeping
    connections: Connections


def _admission(rooms: Rooms) -> float | None:
    admission, spool = rooms.owner.admission, rooms.owner.spool
    failed = admission.disk_failed or admission.displaced or spool.journal_failed
    if admission.restored or admission.stopping or failed or spool.displaced:
        return NOW
    return admission.goes_on_at


def _spool(rooms: Rooms) -> float | None:
    spool = rooms.owner.spool
    return NOW if spool.pending or spool.lag or spool.stuck or spool.rests else None


def _attempts(rooms: Rooms) -> float | None:
    attempts = rooms.owner.attempts
    kept = attempts.workers or attempts.holders or attempts.left
    return NOW if kept or not attempts.none_left else None


def _children(rooms: Rooms) -> float | None:
    """They would have no parent that waits for them."""
    return None if rooms.owner.family.strangers() == set() else NOW


def _leases(rooms: Rooms) -> float | None:
    return NOW if len(rooms.owner.leases) else None


def _waiting(rooms: Rooms) -> float | None:
    """Messages that a person holds wait for him alone, those in que for their due."""
    return rooms.owner.backlog.first_due()


def _predecessors(rooms: Rooms) -> float | None:
    is_asking = rooms.owner.backlog.predecessors or rooms.asker.is_busy
    return NOW if is_asking or rooms.owner.spool.events.hints else None


def _owed(rooms: Rooms) -> float | None:
    return NOW if len(rooms.owner.spool.owed) else None


def _bulks(rooms: Rooms) -> float | None:
    return NOW if list(rooms.owner.spool.bulks.open_ones()) else None


def _transactions(rooms: Rooms) -> float | None:
    txns = rooms.owner.spool.txns
    if txns.stock.left or txns.in_chains:
        return NOW
    return min((txn.ends for txn in txns.open_ones()), default=None)


def _notices(rooms: Rooms) -> float | None:
    """What was counted is told, and so is that nothing has succeeded for long."""
    wanted, news = rooms.owner.settings.notices, rooms.owner.spool.news
    times = [
        group.at + wanted[Matter(matter)]["every"] * 60
        for matter, group in news.groups.items()
        if group.more and matter in wanted
    ]
    if Matter.QUIET in wanted and not news.quiet:
        last = max(news.watched, news.succeeded)
        times.append(last + wanted[Matter.QUIET]["seconds"])
    return min(times, default=None)


def _retention(rooms: Rooms) -> float | None:
    """What has ended, and what was prepared, is removed one day. Once a look for it is
    due the process stays until it was made, however seldom it has anything else to do."""
    spool = rooms.owner.spool
    ages = [*HASHED, State.DISMISSED, State.PREP]
    is_any = any(spool.counts.of(state) for state in ages)
    return rooms.housekeeping.retained_at + RETAINED if is_any else None


def _history(rooms: Rooms) -> float | None:
    """What was written becomes history when the hour is over; not of all queues at once."""
    spool = rooms.owner.spool
    if spool.is_sealed:
        return None
    spread = zlib.crc32(rooms.owner.name.encode()) % SPREAD
    return (spool.clock() // HOUR + 1) * HOUR + spread


def _chores(rooms: Rooms) -> float | None:
    is_busy = rooms.housekeeping.is_busy or rooms.checkpoints.is_busy
    return NOW if is_busy else None


def _connections(rooms: Rooms) -> float | None:
    return None if rooms.connections.are_idle else NOW


ROOMS: Final[dict[str, Callable[[Rooms], float | None]]] = {
    "admission": _admission,
    "spool": _spool,
    "attempts": _attempts,
    "children": _children,
    "leases": _leases,
    "waiting": _waiting,
    "predecessors": _predecessors,
    "owed": _owed,
    "bulks": _bulks,
    "transactions": _transactions,
    "notices": _notices,
    "retention": _retention,
    "history": _history,
    "connections": _connections,
    CHORES: _chores,  # last: any other that is busy, too, is named before it
}


def ahead(rooms: Rooms) -> tuple[str, float | None]:
    """Return which room acts next, and when; None: nothing is ahead."""
    times = {name: look(rooms) for name, look in ROOMS.items()}
    coming = {name: at for name, at in times.items() if at is not None}
    first = min(coming, key=coming.__getitem__, default="")
    return first, coming.get(first)


class Idle:
    """For how long a queue has had nothing to do, and whether that is long enough."""

    def __init__(self, rooms: Rooms, before: Parked | None) -> None:
        """`before`: how it was parked the last time, if it was."""
        self._rooms = rooms
        self._least = _least(before, time.time())
        self._seen: tuple[int, int] | None = None
        self._since = time.monotonic()
        self._alarm: asyncio.TimerHandle | None = None
        self.wakes_at: float | None = None

    @property
    def after(self) -> float | None:
        """After how many idle seconds it is parked; None: never."""
        wanted = self._rooms.owner.config.park
        return None if wanted is None else max(wanted, self._least)

    def is_over(self) -> bool:
        """Whether it has been idle for long enough, and may be parked now."""
        after = self.after
        if after is None:
            return False
        room, self.wakes_at = ahead(self._rooms)
        seen = self._rooms.owner.spool.last_seq, self._rooms.connections.requests
        now, soon = time.monotonic(), time.time() + min(SOON, 2 * after)
        is_busy = self.wakes_at is not None and self.wakes_at < soon
        # Chores that go on for a moment put it off, and are no reason to wait longer.
        if seen != self._seen or (is_busy and room != CHORES):
            self._seen, self._since = seen, now
        return not is_busy and now - self._since >= after

    def look_soon(
        self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]
    ) -> None:
        """Look again sooner than chores are done, if so short a time is wanted."""
        after = self.after
        is_set = self._alarm is not None and self._alarm.when() > loop.time()
        if after is not None and after < 2 * TICK and not is_set:
            self._alarm = loop.call_later(after / 4, look)


def _least(before: Parked | None, now: float) -> float:
    """Return for how long a queue is idle at least before it is parked: one that was woken
    soon after it was parked waits for longer each time."""
    if before is None or now - before.at > OFTEN * before.after:
        return 0.0
    return min(LONGEST, 2 * before.after)
