"""The chores of a queue, every few seconds and every hour: read files, seal, expire."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from rq import config
from rq.config import files
from rq.errors import BadConfig, DiskFailed, RQError
from rq.layout import QueueDir
from rq.message import guarded
from rq.message.guarded import Sender
from rq.message.message import Message
from rq.proc.slices import in_slices
from rq.queues.concurrency import Tasks
from rq.queues.control import deciding, idempotency, predecessors
from rq.queues.control.connections import Connections
from rq.queues.delivery import notices
from rq.queues.maintenance import retention
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.maintenance.counters import Counters
from rq.queues.maintenance.deposits import Deposits
from rq.queues.maintenance.retention import Retention
from rq.queues.maintenance.stall import Stall
from rq.queues.owner import rates
from rq.queues.owner.owner import Owner
from rq.queues.runner.runner import Runner
from rq.spool import PREP_SECONDS, Spool, door, why_waiting
from rq.words.states import Event, Role, State

PATIENCE = 2.0  # seconds that the command `wake` waits for the deposits in new/
TICK = 5.0  # seconds between looks at files, at the latest
HOUR = 3600.0
SETTLED_IN = 60.0  # seconds from the start of a queue to its first hourly chores
RETAINED = (
    12 * HOUR
)  # from when a parked queue looked for old messages to the next look
_LOOKED_AT = 1000  # messages at work, the oldest, that a look for slow ones sees
_UNREAD = (0, 0, 0)  # no file looks so: its content is read at the next look

log = logging.getLogger(__name__)
AWAY = 86400.0  # seconds; a longer time between two runs counts as a jump of the clock


class Housekeeping:
    """All that recurs in the process of one queue."""

    def __init__(
        self,
        owner: Owner,
        runner: Runner,
        checkpoints: Checkpoints,
        connections: Connections,
        open_again: Callable[[], None],
    ) -> None:
        self.owner = owner
        self.runner = runner
        self.deposits = Deposits(
            _keeper(owner), owner.health, owner.wakeup, Tasks(owner.loop)
        )
        self.stall = Stall(owner)
        self.counters = Counters(owner.spool, owner.admission, owner.pools.looks)
        self.retention = Retention(
            owner.settings,
            owner.spool,
            owner.admission,
            owner.wakeup,
            self.counters,
            owner.pools.looks,
        )
        self._tasks = Tasks(owner.loop)
        self._checkpoints = checkpoints
        self._connections = connections
        self._open_again = open_again
        self._config_seen = _stamp(owner.queue.config)
        if not owner.reload():  # it may have changed since this start has read it
            self._config_seen = _UNREAD
        self._hour = int(time.time() // 3600)
        self._clocks = (time.time(), time.monotonic())
        self._retaining: asyncio.Task[None] | None = None  # or counting again
        self._last_hourly = time.monotonic() - HOUR + SETTLED_IN
        # Epoch seconds: when what is old was looked for, by this process or before it.
        self.retained_at = time.time()
        self._trust = ClockTrust(owner.spool.seen, *self._clocks, HOUR)
        if not self._trust.holds(*self._clocks):
            away = (self._clocks[0] - owner.spool.seen) / HOUR
            log.warning(
                "the clock is %.0f h ahead of when this queue last ran: nothing "
                "expires for an hour",
                away,
            )
        self._ended = False
        self.others: list[Callable[[], object]] = []  # chores of the whole process
        self._rates_saved = time.monotonic()
        saved = _saved(owner.queue)
        owner.rates.restored(saved, time.monotonic(), time.time())
        owner.spool.figures.durations.restored(saved.get("durations"))

    # ---- looking at files

    async def look(self) -> None:
        """Look at the script, the config, the admin files and new/; wait a moment until
        what lies in new/ has been taken."""
        self.runner.look_at_script()
        self._look_at_files()
        self.deposits.look()
        self.owner.wake()
        await self.deposits.rest(PATIENCE)

    def _glance_at_files(self) -> None:
        """As `look`, now and then."""
        self._look_at_files()
        self.deposits.glance()
        self.owner.wake()

    def _look_at_files(self) -> None:
        """Look at the config and the admin files."""
        owner = self.owner
        owner.admission.forget_admin()
        seen = _stamp(owner.queue.config)
        if seen != self._config_seen:
            self._reload(seen)

    def reload(self) -> None:
        """Read the config at once (SIGHUP)."""
        if self.owner.admission.restored:
            self._look_whether_it_waits()
            return
        self._reload(_stamp(self.owner.queue.config))

    def _reload(self, seen: tuple[int, int, int] | None) -> None:
        """Read the config, whose file looks as `seen`; if it cannot be read now, read it
        at the next look, even if the file has not changed by then."""
        self._config_seen = seen if self.owner.reload() else _UNREAD
        if self._config_seen == _UNREAD:
            return
        self.runner.pool.renew()
        self.runner.look_at_script()

    def tick(self) -> None:
        """Do what has to be done now and then."""
        if self._ended:
            return
        self.owner.loop.call_later(TICK, self.tick)
        for chore in self._chores():  # the others run even if one fails
            try:
                chore()
            except Exception:
                log.exception("housekeeping failed; RQ tries again in %d s", TICK)

    def _chores(self) -> tuple[Callable[[], object], ...]:
        if self.owner.admission.restored:
            return (self._connections.drop_silent, self._look_whether_it_waits)
        return (
            *self.others,  # before those that go on for a moment have begun
            self._look_at_place,
            self._watch_clocks,
            self.owner.spool.remove_again,
            self._glance_at_files,
            self.stall.look,
            self._connections.drop_silent,
            self.owner.spool.look_for_space,
            self.runner.pool.retire_worn,
            self.runner.left_processes.look,
            self.runner.tokens.remove_again,
            self.owner.family.strangers,
            self._seal_hourly,
            self._expire_transactions,
            self._save_rates,
            self._tell,
            self._housekeep,
        )

    def _look_at_place(self) -> None:
        """See whether the queue is still where it was; the next turn acts on it."""
        self.owner.spool.look_at_place()
        if self.owner.spool.displaced:
            self.owner.wake()

    def _believed(self) -> bool:
        """Whether the clock can be trusted, so that messages may expire."""
        holds = self._trust.holds(time.time(), time.monotonic())
        self.owner.spool.seen = self._trust.seen
        return holds

    def _expire_transactions(self) -> None:
        deciding.go_on(self.owner, self._tasks.spawn)
        if self._believed():
            now = self.owner.spool.clock()
            covered = self._checkpoints.seq
            deciding.expire(self.owner, now, covered, self._tasks.spawn)

    def _tell(self) -> None:
        """Tell people what has become due to be told."""
        owner = self.owner
        if owner.admission.stopping:
            return
        first = itertools.islice(owner.attempts, _LOOKED_AT)
        running = ((a.message, a.run_seconds) for a in first if a.at_work)
        if notices.look(owner.spool, owner.settings, running):
            owner.wake()

    def _look_whether_it_waits(self) -> None:
        """Open the queue when its config, which was read at the start, is another now and
        no person need decide any more: it runs RQ's own script instead of the Ruby
        RQ's."""
        seen = _stamp(self.owner.queue.config)
        if seen == self._config_seen:
            return
        self._config_seen = seen
        if why_waiting(self.owner.queue) is None:
            self._open_again()

    def _save_rates(self) -> None:
        """Save the counters of the hour, once a minute and if they changed."""
        now = time.monotonic()
        if self._has_rates() and now - self._rates_saved >= rates.STEP:
            self._rates_saved = now
            loop = self.owner.loop
            loop.run_in_executor(None, _save, self.owner.queue, self._rates())

    def _has_rates(self) -> bool:
        """Whether there are counters to write, and a directory of ours to hold them."""
        return self.owner.rates.changed and not self.owner.spool.displaced

    def _rates(self) -> Mapping[str, object]:
        depth, leased = self.owner.spool.depth, len(self.owner.leases)
        return {
            **self.owner.rates.saved(time.monotonic(), time.time(), depth, leased),
            "durations": self.owner.spool.figures.durations.saved(),
        }

    def _watch_clocks(self) -> None:
        wall, mono = time.time(), time.monotonic()
        step = (wall - self._clocks[0]) - (mono - self._clocks[1])
        self._clocks = (wall, mono)
        if abs(step) > 60:
            log.warning("the clock of this machine was set by %+.0f s", step)
            self.owner.spool.lease_notes.clock_stepped(round(step, 3))
            if step < 0:
                self.runner.clock_went_back()
                self.owner.backlog.clock_went_back()
                self.owner.wake()
            self._trust.jumped(mono)

    def _seal_hourly(self) -> None:
        hour = int(time.time() // 3600)
        if hour != self._hour:
            self._hour = hour
            self.seal()

    def seal(self) -> Future[None] | None:
        """Make history of all events so far; they are durable first."""
        try:
            return self.owner.spool.seal()
        except (OSError, DiskFailed) as error:
            log.error("the journal could not be sealed: %s", error)
            return None

    def go_on_from(self, retained_at: float) -> None:
        """Take when a process before this one looked for what is old, which has parked its
        queue. If that is long ago, this one looks before it has settled in: it may be
        parked sooner, and so may each after it."""
        now = time.time()
        self.retained_at = min(retained_at, now)
        if now - self.retained_at >= RETAINED:
            self._last_hourly -= SETTLED_IN

    def _housekeep(self) -> None:
        now = time.monotonic()
        if now - self._last_hourly < HOUR or not self._believed():
            return
        if self._retaining is not None and not self._retaining.done():
            return  # it counts after the start, or removes since an hour
        self._last_hourly, self.retained_at = now, time.time()
        self.expire()
        self._retaining = self.owner.loop.create_task(self._retain())

    def count_again(self) -> None:
        """Count ended messages again, in the background: a start believes what was counted
        before."""
        self._retaining = self.owner.loop.create_task(self._count_again())

    async def _count_again(self) -> None:
        try:
            await self.counters.correct()
        except OSError as error:
            log.error("messages were not counted: %s; RQ tries again in an hour", error)

    async def _retain(self) -> None:
        """Remove messages and history that have outlived the queue's retention."""
        try:
            await self.retention.apply()
            if await self.retention.forget_history():
                self._checkpoints.start_index()
        except (OSError, RQError) as error:
            log.error("retention failed: %s; RQ tries again in an hour", error)

    def expire(self) -> None:
        """Remove prepared messages that were not committed; forget old delivery keys and
        old decisions of transactions."""
        if self._believed():
            self._tasks.spawn(self._expire())

    async def _expire(self) -> None:
        spool = self.owner.spool
        now = spool.clock()

        def discard(msg_id: str) -> None:
            entry = spool.entry_of(msg_id)
            if (
                entry is None
                or entry.state is not State.PREP
                or entry.busy
                or self._ended
            ):
                return
            # A transaction that is open expires as a whole.
            if not spool.txns.of(msg_id) and is_old(spool, msg_id, now):
                spool.fire(msg_id, Event.EXPIRE, Role.QUEUE)

        await in_slices(spool.live(), discard, self.owner.wake)
        await idempotency.forget_removed(self.owner)
        await in_slices(spool.remembered_keys(), lambda key: spool.forget_key(key, now))
        last = list(spool.uniques.last)
        await in_slices(last, lambda key: self.owner.uniqueness.forget(key, now))
        spool.txns.forget(now)
        self.owner.wake()

    def end(self) -> None:
        """Do no more chores: the queue ends."""
        self._ended = True
        if self._has_rates():
            _save(self.owner.queue, self._rates())

    @property
    def is_busy(self) -> bool:
        """Whether a chore goes on, or something lies in new/."""
        is_retaining = self._retaining is not None and not self._retaining.done()
        return bool(is_retaining or self._tasks or self.deposits.is_busy)

    def stop_retaining(self) -> None:
        if self._retaining is not None:
            self._retaining.cancel()


def _keeper(owner: Owner) -> door.Keeper:
    """Return what the door of a queue asks its owner."""

    def take(message: Message) -> None:
        owner.backlog.put(message.msg_id, message)
        owner.wake()

    def check_sender(is_ours: bool) -> None:
        guarded.check(owner.name, Sender.OPERATOR if is_ours else Sender.PRODUCER)

    return door.Keeper(
        spool=owner.spool,
        stands_for=owner.stands_for,
        origin=owner.full_id(""),
        aside=functools.partial(owner.loop.run_in_executor, owner.pools.looks),
        take=take,
        is_open=lambda: owner.admission.takes_deposits,
        check_sender=check_sender,
        check_others=predecessors.AtDoor(owner).check,
    )


def _saved(queue: QueueDir) -> Mapping[str, object]:
    """Return the counters of the hour as an earlier process has left them."""
    try:
        return config.read_json(queue.rates)
    except BadConfig:  # the file is missing or damaged; the counters are no promise
        return {}


def _save(queue: QueueDir, counters: Mapping[str, object]) -> None:
    """Write the counters of the hour; if the disk is full the old file stays."""
    with contextlib.suppress(OSError):
        files.write_cache(queue.rates, counters)


def is_old(spool: Spool, msg_id: str, now: float) -> bool:
    with contextlib.suppress(OSError):
        return now - retention.prepared(spool, msg_id) > PREP_SECONDS
    return False


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


class ClockTrust:
    """Whether the clock may be believed by what makes things old; `steady` are seconds of
    a clock that is never set.

    A wrong clock is mostly put right soon. So nothing expires for an hour after a jump of
    the clock, or after a start with a clock that is far ahead of the time last seen.
    """

    def __init__(self, seen: float, now: float, steady: float, hour: float) -> None:
        """`seen` is the last time, in epoch seconds, that an earlier run believed."""
        self.seen = seen
        self._hour = hour
        self._until = steady + hour if now - seen > AWAY else steady

    def jumped(self, steady: float) -> None:
        """Believe nothing for an hour."""
        self._until = steady + self._hour

    def holds(self, now: float, steady: float) -> bool:
        """Return whether the time `now` may make things old."""
        if steady < self._until:
            return False
        self.seen = now
        return True
