"""The process of one queue: joins owner, runner, server and loop."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

from rq import logs, zones  # noqa: F401
from rq.config import files, parked
from rq.config.parked import Listens, Parked
from rq.errors import BadConfig, CannotRead, Damaged, DiskFailed, RQError
from rq.layout import QueueDir, Root
from rq.proc import closing, collector, daemon, descriptors, processes, turnlimit
from rq.queues.asking.asker import Asker
from rq.queues.bulk.actions import Hands
from rq.queues.bulk.worker import Worker
from rq.queues.control.command import Context, Reply
from rq.queues.control.connection import Connection
from rq.queues.control.connections import Clients, Connections, Pace
from rq.queues.control.replies import Replies
from rq.queues.control.server import HANDLERS, Server
from rq.queues.delivery import failure_lines, owed
from rq.queues.delivery.delivery import Delivery
from rq.queues.feed import Feed
from rq.queues.housekeeping import Housekeeping
from rq.queues.leases.desk import Desk
from rq.queues.loop import Loop
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.owner import uniqueness
from rq.queues.owner.owner import Owner
from rq.queues.owner.settings import Settings
from rq.queues.parent import Parent
from rq.queues.parking import Idle, Rooms
from rq.queues.runner.runner import Runner

# zones: its library, before another user is become, who may not read it.
from rq.replies import FiguresView
from rq.rpc import client
from rq.rpc.lines.commands import COMMANDS
from rq.rpc.lines.commands import Parked as WhileParked
from rq.spool import Opened, checkpoint, open_spool
from rq.words.states import Note

ORPHANED = 2.0  # seconds that a queue without parent waits to be adopted
FAILED, FATAL, DISPLACED = 1, 3, 4  # exit statuses
_AGAIN = -1  # no exit status: the queue is opened once more

log = logging.getLogger(__name__)


class Process:
    """One queue at work, until it ends."""

    def __init__(
        self, owner: Owner, runner: Runner, sock: socket.socket, parent: Parent
    ) -> None:
        """`sock` listens for clients."""
        self.owner = owner
        self.runner = runner
        self._sock = sock
        self._parent = parent
        self.leaves_socket = False  # it goes on listening without this process
        self._delivery = Delivery(
            owner.spool, owner.settings, owner.health, owner.wakeup
        )
        self._connections = Connections(self.orphaned)
        clients = Clients(
            connections=self._connections,
            replies=Replies(owner.wake, self._connections.relieve),
            pace=Pace(owner.spool),
        )
        self.checkpoints = Checkpoints(
            owner.spool, owner.health, owner.wakeup, owner.threads, self._disk_failed
        )
        self.leases = Desk(owner)
        self.asker = Asker(owner)
        self.bulks = Worker(Hands(owner, runner, self.leases))
        self.loop = Loop(
            owner,
            runner,
            self.leases,
            self.asker,
            self.checkpoints,
            self._delivery,
            Feed(owner),
            clients,
            self._displaced,
        )
        self.housekeeping = Housekeeping(
            owner, runner, self.checkpoints, self._connections, self.open_again
        )
        self._pace = clients.pace
        self.server = Server(owner, sock, clients, self._context)
        rooms = Rooms(
            owner=owner,
            leases=self.leases,
            asker=self.asker,
            checkpoints=self.checkpoints,
            housekeeping=self.housekeeping,
            connections=self._connections,
        )
        before = parked.read(owner.queue)
        self.idle = Idle(rooms, before)
        if before is not None:
            self.housekeeping.go_on_from(before.retained_at)
            _count_on(owner, before)
        if parent.takes:
            self.housekeeping.others.append(self._park_if_idle)

    def _context(self, connection: Connection) -> Context:
        return Context(
            owner=self.owner,
            runner=self.runner,
            connection=connection,
            connections=self._connections,
            stop=self.stop,
            look=self.housekeeping.look,
            seal=self.housekeeping.seal,
            open_again=self.open_again,
            stall=self.housekeeping.stall,
            retention=self.housekeeping.retention,
            counters=self.housekeeping.counters,
            checkpoints=self.checkpoints,
            leases=self.leases,
            asker=self.asker,
            bulks=self.bulks,
            pace=self._pace,
        )

    def _disk_failed(self, reason: str) -> None:
        """Nothing more can be promised: let workers end, then end."""
        owner = self.owner
        owner.admission.disk_failed = reason
        owner.spool.note(Note.SUSPECT, reason=reason)
        owner.wake()
        log.error(
            "the disk failed: %s; nothing new is accepted, what runs may finish, then "
            "this process ends and the next one writes anew what is in doubt",
            reason,
        )
        owner.loop.create_task(self._end_after_workers())

    async def _end_after_workers(self) -> None:
        owner = self.owner
        while not owner.attempts.none_left:
            await asyncio.sleep(0.1)
        self._end(FAILED)

    def _displaced(self, why: str) -> None:
        """Nothing that is written would be found: end the scripts, then end. Another
        owner may begin where the path leads, with a lock of its own, and these scripts
        would run beside their next attempts."""
        log.error(
            "%s: it was removed, moved, mounted over, or a backup was laid over it; "
            "nothing more is accepted, the scripts are ended, then this process ends",
            why,
        )
        self.owner.admission.stopping = True
        self.leases.end_waiting()
        self._stop_task = self.owner.loop.create_task(self._end_displaced())

    async def _end_displaced(self) -> None:
        self._delivery.cancel()
        self.housekeeping.stop_retaining()
        try:
            await self.runner.end_all(self.owner.pools.looks)
        except OSError as error:
            log.error("scripts may still run: %s", error)
        self.server.close()
        self._end(DISPLACED)

    def stop(self) -> None:
        """End gracefully: no new starts, grace, TERM, KILL, clean end."""
        if not self.owner.admission.stopping:
            self.owner.admission.stopping = True
            log.info("stopping")
            self.leases.end_waiting()
            self._stop_task = self.owner.loop.create_task(self._stop())

    def _park_if_idle(self) -> None:
        """Leave the listening socket to the supervisor, and end, when there was nothing to
        do for so long as the settings say. One whose supervisor has ended stays: it is
        adopted, or ends as an orphan."""
        if not self._parent.lives:
            return
        if not self.idle.is_over():
            self.idle.look_soon(self.owner.loop, self._park_if_idle)
        elif not self.owner.admission.stopping and self.server.let_go():
            answers = self._lasting_answers()
            self.owner.admission.stopping = True
            self._stop_task = self.owner.loop.create_task(self._stop(answers))

    def _lasting_answers(self) -> dict[str, Reply]:
        """Return what is answered for the queue while it has no process."""
        context = self._context(cast(Connection, None))  # none of these asks who asks
        words = [
            word
            for word, command in COMMANDS.items()
            if command.parked is WhileParked.FILE
        ]
        return {word: cast(Reply, HANDLERS[word](context, {})) for word in words}

    def _hand_over(self, answers: dict[str, Reply]) -> int:
        """Leave what is read while the queue is parked, and the socket; all is closed. One
        whose supervisor has ended since it looked for it is opened once more, with that
        socket; return how this process goes on."""
        owner = self.owner
        left = parked.Parked(
            at=time.time(),
            after=self.idle.after or 0.0,
            wakes_at=self.idle.wakes_at,
            retained_at=self.housekeeping.retained_at,
            boot=processes.boot_id(),
            journal=owner.spool.journal_id,
            seq=owner.spool.last_seq,
            socket=parked.stamp(owner.queue.socket),
            stamps=parked.stamps(owner.root, owner.name),
            answers=answers,
        )
        parked.leave(owner.queue, left)
        self.leaves_socket = True
        try:
            self._parent.hand_over(self._sock, left)
        except OSError as error:
            log.warning("it goes on: the supervisor did not take its socket: %s", error)
            return _AGAIN
        log.info("parked: nothing to do")
        return 0

    async def _stop(self, answers: dict[str, Reply] | None = None) -> None:
        """End cleanly; with `answers`, which are left to be read, to be parked."""
        try:
            await self.runner.stop()
            self._delivery.cancel()
            await self.bulks.rest()
            self.housekeeping.stop_retaining()
            await self.housekeeping.deposits.rest()
            await self.owner.committed()
            await asyncio.sleep(0)
            if answers is None:
                self.server.close()
            if self.checkpoints.syncing is not None:
                await asyncio.wrap_future(self.checkpoints.syncing)
            self._close_cleanly(parks=answers is not None)
            self._end(0 if answers is None else self._hand_over(answers))
        except (OSError, RQError) as error:
            log.error(
                "the queue did not stop cleanly: %s; its next start replays the journal",
                error,
            )
            self._end(FAILED)

    def _close_cleanly(self, parks: bool) -> None:
        self.checkpoints.abandon_index()
        if self.owner.admission.restored:
            return  # nothing was changed
        if self.owner.admission.disk_failed:
            raise DiskFailed(self.owner.admission.disk_failed)
        spool = self.owner.spool
        spool.commit()
        spool.settle_all()
        self.leases.save_left()
        self.owner.threads.submit(lambda: None).result()
        if parks:
            checkpoint.park(spool, self.owner.opened.is_as_found)
        else:
            checkpoint.stop(spool)

    def open_again(self) -> None:
        """Open the queue once more, from what lies on disk now."""
        self._opening = self.owner.loop.create_task(self._open_again())

    async def _open_again(self) -> None:
        await self.owner.committed()  # the answer has left
        self.server.close()
        self._end(_AGAIN)

    def _end(self, status: int) -> None:
        self.housekeeping.end()
        self.loop.end(status)

    def orphaned(self) -> None:
        """The parent is gone: wait for another one to adopt us, then stop."""
        log.warning(
            "the supervisor has ended: this process ends too unless a new one takes it "
            "over within %.0f s",
            ORPHANED,
        )
        self.owner.loop.call_later(ORPHANED, self._stop_unless_adopted)

    def _stop_unless_adopted(self) -> None:
        if not self._connections.minded:
            self.stop()


# ---- the program


def main(
    root: Path,
    name: str,
    *,
    ready_fd: int | None,
    life_fd: int | None,
    listens: Listens | None = None,
) -> int:
    """Own the queue `name` until told to stop; return the exit status.

    One newline goes to `ready_fd` when it serves, `FATAL sentence` when it cannot and
    must not be started again. `life_fd` reads EOF when the parent ends. `listens`: what a
    queue has that was parked.
    """
    given = (ready_fd, life_fd, None if listens is None else listens.fd)
    descriptors.own_descriptors(fd for fd in given if fd is not None)
    daemon.own_signals()
    turnlimit.watch()
    ready, life, sock = (fd and descriptors.move_above(fd) for fd in given)
    if listens is not None and sock is not None:
        listens = replace(listens, fd=sock)
    descriptors.park_descriptors()
    parent = Parent(ready)
    daemon.title(f"rq-que {name}")
    where = Root(root)
    if not logging.getLogger().handlers:
        logs.open_log(f"queue {name}", where.log / f"queue-{name}.log")
    try:
        while (status := _serve(where, name, parent, life, listens)) == _AGAIN:
            listens = parent.take_back()
        return status
    except CannotRead as error:  # the next start may read it
        log.error("the queue cannot be opened: %s", error)
        return FAILED
    except (BadConfig, Damaged) as error:
        log.error("%s", error)
        parent.say(f"FATAL {error}\n")
        return FATAL
    except (RQError, OSError) as error:
        log.error("the queue cannot be opened: %s", error)
        return FAILED
    except Exception:
        log.exception("the queue ends by a fault of its own")
        return FAILED


def _serve(
    root: Root, name: str, parent: Parent, life: int | None, listens: Listens | None
) -> int:
    queue = root.queue(name)
    settings = Settings(root, name)
    descriptors.raise_descriptor_limit()
    os.chdir("/")
    collector.pause()
    with ThreadPoolExecutor(4, "rq-disk") as threads:
        owes = functools.partial(owed.at_end, settings)
        opened = open_spool(
            queue,
            threads=threads,
            grace=settings.grace,
            owes=owes,
            retry=lambda: settings.queue.retry,
            keys=uniqueness.keys(settings.queue),
            parked_at=None if listens is None else listens.end.place,
        )
        loop = closing.Loop()
        owner = Owner(opened, settings, loop, threads)
        try:
            with failure_lines.into_journal(owner.spool, name):
                status = loop.run_until_complete(
                    _live(owner, opened, parent, life, listens)
                )
        finally:
            owner.pools.close()
            loop.close()
    os.close(opened.lock)
    opened.spool.close()
    return status


async def _live(
    owner: Owner,
    opened: Opened,
    parent: Parent,
    life: int | None,
    listens: Listens | None,
) -> int:
    loop, queue = owner.loop, owner.queue
    runner = Runner(owner)
    process = Process(owner, runner, _listening(queue, listens), parent)
    loop.add_signal_handler(signal.SIGTERM, process.stop)
    loop.add_signal_handler(signal.SIGINT, process.stop)
    loop.add_signal_handler(signal.SIGHUP, process.housekeeping.reload)
    if life is not None:
        _watch_life(loop, life, process)
    files.write_text(queue.pid, f"{os.getpid()}\n")
    log.info(
        "ready: %s",
        logs.fields(
            waiting=owner.spool.depth,
            journal=owner.spool.journal_id,
            clean=opened.clean,
        ),
    )
    if not owner.admission.restored:
        process.housekeeping.expire()
        process.housekeeping.count_again()
        process.bulks.go_on()
    process.housekeeping.tick()
    collector.collect_young()
    if listens is not None:
        parked.wakes()
    parent.say("\n")
    parked.forget(queue)  # not before: another start, with the same socket, needs it
    status = await process.loop.run()
    left = (queue.pid,) if process.leaves_socket else (queue.pid, queue.socket)
    for path in left:  # of this queue, wherever it lies by now
        files.remove_in(path.name, owner.spool.dir_fd)
    return status


def _listening(queue: QueueDir, listens: Listens | None) -> socket.socket:
    """Return the socket that a queue listens on: that with which it was parked, if the name
    still leads to it, or another one."""
    if listens is None:
        return client.listen(queue.socket)
    sock = socket.socket(fileno=listens.fd)
    if listens.end.socket == parked.stamp(queue.socket):
        return sock
    sock.close()
    return client.listen(queue.socket)


def _count_on(owner: Owner, before: Parked) -> None:
    """Let what monitors measure go on from what it was when the queue was parked."""
    if before.journal != owner.spool.journal_id:
        return
    match before.answers.get("figures"):
        case [_, figures]:
            owner.spool.figures.go_on_from(cast(FiguresView, figures))


def _watch_life(loop: asyncio.AbstractEventLoop, life: int, process: Process) -> None:
    def gone() -> None:
        if not os.read(life, 1):
            loop.remove_reader(life)
            process.orphaned()

    loop.add_reader(life, gone)
