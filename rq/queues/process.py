"""The process of one queue: joins owner, runner and server into one loop.

A turn: claim what is due, commit the group, answer, start what was claimed, make
folders for some milliseconds. Everything that happens asks for a turn by `wake`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rq import client, config, logs, proc, retry
from rq.causes import Cause
from rq.config import Admin
from rq.errors import BadConfig, Damaged, DiskFailed, Refused, RQError
from rq.layout import QueueDir, Root
from rq.queues import delivery, retention
from rq.queues.connection import Connection
from rq.queues.owner import Owner
from rq.queues.runner import Runner
from rq.queues.server import Server
from rq.queues.verbs import Context
from rq.spool import Opened, Spool, checkpoint, door, index, open_spool
from rq.spool.store import PREP_SECONDS, key_seconds
from rq.states import Event, Note, Role, State

SLICE = 0.005  # seconds of folder work between commits
SHARE = 0.005  # seconds that ends of attempts may wait for others to share a sync
QUIET = 0.002  # seconds without a request before folders are made
WAIT = 1.0  # seconds that folders may wait while requests come in
TICK = 5.0  # seconds between looks at files, at the latest
ORPHANED = 2.0  # seconds that a queue without parent waits to be adopted
HOUR = 3600.0
SETTLED_IN = 60.0  # seconds after its start a queue first looks for what is old
INDEX_EVENTS = 500_000
FAILED, FATAL = 1, 3  # exit statuses

log = logging.getLogger(__name__)


class Process:
    """One queue at work."""

    def __init__(self, owner: Owner, runner: Runner) -> None:
        self.owner = owner
        self.runner = runner
        self.server: Server
        self._turning = False
        self._alarm: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._failures = 0
        self._sync_at: float | None = None  # when what is written has to be synced
        self._boot = proc.boot_id()
        self._point: checkpoint.Checkpoint | None = None
        self._syncing: Future[None] | None = None
        self._first_open: float | None = None  # when the first uncovered event came
        self._index: index.Writing | None = None
        self._indexed = owner.spool.journal.seq
        self._delivery = delivery.Delivery(owner)
        self._config_seen = _stamp(owner.queue.config)
        self._hour = int(time.time() // 3600)
        self._clocks = (time.time(), time.monotonic())
        self._retaining: asyncio.Task[None] | None = None
        self._last_hourly = time.monotonic() - HOUR + SETTLED_IN
        self.done: asyncio.Future[int] = owner.loop.create_future()
        owner.wake = self.wake

    # ---- turns

    def wake(self) -> None:
        """Ask for a turn."""
        if not self._turning:
            self._turning = True
            self.owner.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        if self.done.done():
            return
        try:
            self._turn_once()
        except Exception:
            log.exception("a turn failed; RQ goes on with the next")
            self.owner.loop.call_later(1.0, self.wake)

    def _turn_once(self) -> None:
        owner = self.owner
        spool = owner.spool
        later = self.runner.claim_due()
        durable_seq = spool.journal.position.seq
        sync = self._must_sync(durable_seq)
        if spool.journal.write(last=sync):
            self.runner.launch(durable_seq)
            if spool.journal.pending and not sync:
                self._set_alarm(later)
                return
        if spool.journal.pending and not self._commit():
            return
        self._answer()
        owner.forget_admin()
        self.runner.launch(spool.journal.position.seq)
        lag = spool.lag
        more = self._settle()
        self.server.resume(lag - spool.lag)
        more = self._mind_checkpoint() or more
        if more or spool.journal.pending:
            self.wake()
        elif spool.stuck:
            owner.loop.call_later(1.0, self.wake)
        self._set_alarm(later)
        if spool.owed:
            self._delivery.start()

    def _must_sync(self, durable_seq: int) -> bool:
        """Whether what was written has to be made durable in this turn.

        While scripts end one after the other, and nobody waits for an answer, one sync
        is enough for the ends of some milliseconds.
        """
        owner = self.owner
        if not self.runner.flows or self.server.owes or owner.waiters:
            return True
        if self.runner.waits_for_sync(durable_seq) or owner.spool.journal.full:
            return True
        now = owner.loop.time()
        if self._sync_at is None:
            self._sync_at = now + SHARE
            owner.loop.call_at(self._sync_at, self.wake)
        return now >= self._sync_at

    def _settle(self) -> bool:
        """Make folders for a slice; return whether more can be made at once.

        While requests come in and the lag is small, folders wait: an answer is worth
        more to the one who waits for it than a folder to nobody.
        """
        spool = self.owner.spool
        if not self.server.busy(QUIET):
            at_work = self.owner.workers and not self.server.behind
            return spool.settle_some(SLICE / 5 if at_work else SLICE)
        if spool.waited > WAIT:
            return spool.settle_some(SLICE / 5)
        if spool.unsettled and self._quiet is None:
            self._quiet = self.owner.loop.call_later(QUIET, self._is_quiet)
        return False

    def _is_quiet(self) -> None:
        self._quiet = None
        self.wake()

    def _commit(self) -> bool:
        spool = self.owner.spool
        try:
            spool.commit()
        except DiskFailed as error:
            self._failures += 1
            log.error("%s; what was asked waits, RQ tries again", error)
            self.server.stall()
            self.owner.loop.call_later(
                retry.delay(self._failures, 1.0, 30.0), self.wake
            )
            return False
        self._failures = 0
        self._sync_at = None
        if self._first_open is None:
            self._first_open = time.monotonic()
        return True

    def _answer(self) -> None:
        self.server.flush()
        waiters, self.owner.waiters = self.owner.waiters, []
        for one in waiters:
            if not one.done():
                one.set_result(None)

    def _set_alarm(self, later: float | None) -> None:
        """Be woken when the next message is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if later is not None:
            away = min(TICK, max(0.0, later - self.owner.spool.clock()))
            self._alarm = self.owner.loop.call_later(away, self.wake)

    # ---- looking at files

    def look(self) -> None:
        """Look at config, admin files and the door."""
        owner = self.owner
        owner.forget_admin()
        seen = _stamp(owner.queue.config)
        if seen != self._config_seen:
            self._config_seen = seen
            owner.reload()
            self.runner.pool.renew()
        self.runner.look_at_script()
        if owner.admin is not Admin.DOWN and owner.closed() is None:
            adopted = door.adopt(owner.spool, owner.full_id(""), owner.left_at_door)
            owner.left_at_door = adopted.left
            for message in adopted.messages:
                owner.waits(message.msg_id, message)
            if adopted.messages:
                self.wake()
                owner.loop.call_soon(self.look)
        self.wake()

    def reload(self) -> None:
        self._config_seen = _stamp(self.owner.queue.config)
        self.owner.reload()
        self.runner.pool.renew()

    def tick(self) -> None:
        """Do what has to be done now and then."""
        if self.done.done():
            return
        self.owner.loop.call_later(TICK, self.tick)
        try:
            self._watch_clocks()
            self.look()
            self.server.drop_silent()
            self.owner.spool.journal.look_again()
            self.runner.pool.retire_worn()
            self.runner.look_at_ghosts(Cause.CRASH)
            self._seal_hourly()
            self._housekeep()
        except Exception:
            log.exception("housekeeping failed; RQ tries again in %d s", TICK)

    def _watch_clocks(self) -> None:
        wall, mono = time.time(), time.monotonic()
        step = (wall - self._clocks[0]) - (mono - self._clocks[1])
        self._clocks = (wall, mono)
        if abs(step) > 60:
            log.warning("the clock stepped by %.0f s", step)
            self.owner.spool.note(Note.CLOCK, step=round(step, 3))

    def _seal_hourly(self) -> None:
        hour = int(time.time() // 3600)
        if hour != self._hour:
            self._hour = hour
            self.seal()

    def seal(self) -> Future[None] | None:
        """Make history of all events so far; they are durable first."""
        spool = self.owner.spool
        try:
            spool.commit()
            return spool.journal.seal()
        except (OSError, DiskFailed) as error:
            log.error("the journal could not be sealed: %s", error)
            return None

    def _housekeep(self) -> None:
        now = time.monotonic()
        if now - self._last_hourly < HOUR:
            return
        self._last_hourly = now
        self.expire()
        if self._retaining is None or self._retaining.done():
            self._retaining = self.owner.loop.create_task(self._retain())

    async def _retain(self) -> None:
        """Remove messages and history that have outlived the queue's retention."""
        try:
            await retention.apply(self.owner)
            if await retention.forget_history(self.owner) and self._index is None:
                self._start_index()
        except (OSError, RQError) as error:
            log.error("retention failed: %s; RQ tries again in an hour", error)

    def expire(self) -> None:
        """Remove prepared messages that nobody committed, and old delivery keys."""
        spool = self.owner.spool
        now = spool.clock()
        for msg_id, one in list(spool.entries.items()):
            if one.state is State.PREP and not one.busy and _old(spool, msg_id, now):
                spool.fire(msg_id, Event.EXPIRE, Role.QUEUE)
        for key, (_, since) in list(spool.keys.items()):
            if now - since > key_seconds(key):
                del spool.keys[key]
        self.wake()

    # ---- checkpoint and index

    def _mind_checkpoint(self) -> bool:
        """Move a checkpoint on; return whether it waits for folders."""
        if self._index is not None and not self.owner.spool.journal.pending:
            self._write_index()  # of what is durable only
        if self._syncing is not None:
            return False
        if self._point is None:
            self._begin_checkpoint()
        if self._point is None or self.owner.spool.barrier:
            return self._point is not None
        spool = self.owner.spool
        self._syncing = self.owner.threads.submit(
            checkpoint.finish, spool.dir_fd, spool.queue, self._point
        )
        self._syncing.add_done_callback(
            lambda _: self.owner.loop.call_soon_threadsafe(self._checkpointed)
        )
        return False

    def _begin_checkpoint(self) -> None:
        spool = self.owner.spool
        if self.owner.disk_failed or self._first_open is None or spool.journal.pending:
            return
        waited = time.monotonic() - self._first_open
        written = spool.journal.bytes_written
        if waited < checkpoint.AFTER_SECONDS and written < checkpoint.AFTER_BYTES:
            return
        self._first_open = None
        spool.journal.bytes_written = 0
        self._point = checkpoint.begin(spool, self._boot)

    def _checkpointed(self) -> None:
        syncing, self._syncing = self._syncing, None
        point, self._point = self._point, None
        error = syncing.exception() if syncing else None
        if isinstance(error, Refused):
            log.warning("%s; RQ tries again", error)
            self._first_open = self._first_open or time.monotonic()
        elif error is not None:
            self._disk_failed(str(error))
        elif point is not None:
            self.owner.checkpoint_seq = point.seq
            if point.seq - self._indexed > INDEX_EVENTS and self._index is None:
                self._start_index()

    def _start_index(self) -> None:
        spool = self.owner.spool
        self._indexed = spool.journal.seq
        source = index.lines(
            spool.journal.journal_id,
            spool.journal.position.seq,
            spool.entries,
            spool.keys,
        )
        self._index = index.Writing(spool.queue, source)
        self.owner.loop.call_later(0.05, self.wake)

    def _write_index(self) -> None:
        writing = self._index
        if writing is None:
            return
        try:
            if writing.write_slice():
                self.owner.loop.call_later(0.02, self.wake)
                return
            self._index = None
            self.owner.threads.submit(writing.finish)
        except OSError as error:
            self._index = None
            writing.abandon()
            log.error("the index could not be written: %s; a start takes longer", error)

    def _disk_failed(self, reason: str) -> None:
        """No checkpoint any more in this process: let workers end, then end."""
        self.owner.disk_failed = reason
        self.owner.spool.note(Note.SUSPECT, reason=reason)
        self.wake()
        log.error(
            "the disk failed: %s; nothing new is accepted, what runs may finish, then "
            "this process ends and the next one writes anew what is in doubt",
            reason,
        )
        self.owner.loop.create_task(self._end_after_workers())

    async def _end_after_workers(self) -> None:
        while self.owner.workers or self.owner.claimed:
            await asyncio.sleep(0.1)
        self._end(FAILED)

    # ---- the end

    def stop(self) -> None:
        """End gracefully: no new starts, grace, TERM, KILL, clean end."""
        if not self.owner.stopping:
            self.owner.stopping = True
            log.info("stopping")
            self._stop_task = self.owner.loop.create_task(self._stop())

    async def _stop(self) -> None:
        try:
            await self.runner.stop()
            self._delivery.cancel()
            if self._retaining is not None:
                self._retaining.cancel()
            await self.owner.committed()
            await asyncio.sleep(0)
            self.server.close()
            if self._syncing is not None:
                await asyncio.wrap_future(self._syncing)
            self._close_cleanly()
            self._end(0)
        except (OSError, RQError) as error:
            log.error("the end was not clean: %s; the next start replays", error)
            self._end(FAILED)

    def _close_cleanly(self) -> None:
        if self._index is not None:
            self._index.abandon()
            self._index = None
        if self.owner.disk_failed:
            raise DiskFailed(self.owner.disk_failed)
        spool = self.owner.spool
        spool.commit()
        spool.settle_all()
        self.owner.threads.submit(lambda: None).result()
        checkpoint.stop(spool)

    def _end(self, status: int) -> None:
        if not self.done.done():
            self.done.set_result(status)

    def orphaned(self) -> None:
        """The parent is gone: wait for another one to adopt us, then stop."""
        log.warning("the supervisor is gone; waiting %.0f s to be adopted", ORPHANED)
        self.owner.loop.call_later(ORPHANED, self._stop_unless_adopted)

    def _stop_unless_adopted(self) -> None:
        if not self.server.minded:
            self.stop()


def _old(spool: Spool, msg_id: str, now: float) -> bool:
    with contextlib.suppress(OSError):
        return (
            now - spool.queue.message(State.PREP, msg_id).stat().st_mtime > PREP_SECONDS
        )
    return False


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


# ---- the program


def main(root: Path, name: str, *, ready_fd: int | None, life_fd: int | None) -> int:
    """Own the queue `name` until told to stop; return the exit status.

    One newline goes to `ready_fd` when it serves, `FATAL sentence` when it cannot and
    must not be started again. `life_fd` reads EOF when the parent ends.
    """
    proc.own_descriptors(fd for fd in (ready_fd, life_fd) if fd is not None)
    proc.own_signals()
    ready = None if ready_fd is None else proc.move_above(ready_fd)
    life = None if life_fd is None else proc.move_above(life_fd)
    null = proc.park_descriptors()
    proc.title(f"rq-que {name}")
    where = Root(root)
    if not logging.getLogger().handlers:
        logs.open_log(f"queue {name}", where.log / f"queue-{name}.log")
    try:
        return _serve(where, name, ready, life, null)
    except (BadConfig, Damaged) as error:
        log.error("%s", error)
        _say(ready, f"FATAL {error}\n")
        return FATAL
    except (RQError, OSError) as error:
        log.error("the queue cannot be opened: %s", error)
        return FAILED


def _serve(
    root: Root, name: str, ready: int | None, life: int | None, null: int
) -> int:
    queue = root.queue(name)
    main_config = config.read_root(root)
    queue_config = config.read_queue(queue)
    proc.raise_descriptor_limit()
    os.chdir("/")
    with ThreadPoolExecutor(4, "rq-disk") as threads:
        owes = functools.partial(delivery.webhooks, main_config, name)
        opened = open_spool(queue, threads=threads, grace=main_config.grace, owes=owes)
        loop = asyncio.new_event_loop()
        try:
            owner = Owner(root, name, opened, main_config, queue_config, loop, threads)
            status = loop.run_until_complete(
                _live(owner, opened, queue, ready, life, null)
            )
        finally:
            loop.close()
    return status


async def _live(
    owner: Owner,
    opened: Opened,
    queue: QueueDir,
    ready: int | None,
    life: int | None,
    null: int,
) -> int:
    loop = owner.loop
    runner = Runner(owner, null)
    process = Process(owner, runner)
    sock = client.listen(queue.socket)

    def context(connection: Connection) -> Context:
        return Context(
            owner, runner, connection, process.stop, process.look, process.seal
        )

    process.server = Server(owner, sock, context, process.orphaned)
    loop.add_signal_handler(signal.SIGTERM, process.stop)
    loop.add_signal_handler(signal.SIGINT, process.stop)
    loop.add_signal_handler(signal.SIGHUP, process.reload)
    if life is not None:
        _watch_life(loop, life, process)
    config.write_text(queue.pid, f"{os.getpid()}\n")
    log.info(
        "ready: %s",
        logs.fields(
            waiting=owner.spool.counts.of(State.QUE),
            journal=owner.spool.journal.journal_id,
            clean=opened.clean,
        ),
    )
    process.expire()
    process.tick()
    gc.freeze()  # what is here now stays; a million messages are not looked at again
    _say(ready, "\n")
    status = await process.done
    config.remove_link(queue.pid)
    config.remove_link(queue.socket)
    return status


def _watch_life(loop: asyncio.AbstractEventLoop, life: int, process: Process) -> None:
    def gone() -> None:
        if not os.read(life, 1):
            loop.remove_reader(life)
            process.orphaned()

    loop.add_reader(life, gone)


def _say(ready: int | None, text: str) -> None:
    if ready is not None:
        with contextlib.suppress(OSError):
            os.write(ready, text.encode())
        os.close(ready)
