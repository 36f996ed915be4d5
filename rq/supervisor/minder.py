"""Minds the children: starts, adopts, signals and stops them, as children.step says.

All of it runs in one event loop; whatever happens calls `wake`, and the loop's next pass
does what is due. Nothing here waits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from rq import logs
from rq.config import displaced, parked, trash
from rq.errors import Refused, RQError
from rq.layout import Root
from rq.proc import locks, processes
from rq.supervisor import children, forks, handle
from rq.supervisor.children import Kind, Process, Step
from rq.supervisor.forks import Forks
from rq.supervisor.handle import Handle
from rq.supervisor.listeners import Listeners
from rq.supervisor.places import Places, held_as
from rq.supervisor.table import FORKS, HELPERS, GivenUp, Key, Table
from rq.words.states import Child

STATUS_WAIT = 1.0  # seconds for the fork server to tell how a queue ended

log = logging.getLogger(__name__)
KEPT_RETRY = 0.2  # seconds until a parked queue is tried again whose lock is held
LOCK_RETRY = 1.0  # seconds until a queue that cannot be put away yet is tried again


class Minder:
    """The table of children, and the processes behind it."""

    def __init__(
        self, root: Root, grace: float, is_in_place: Callable[[], bool]
    ) -> None:
        """`is_in_place`: whether the path of the root still leads to ours."""
        self.root = root
        self.is_in_place = is_in_place
        self.table = Table(root, grace)
        self._handles: dict[Key, Handle] = {}
        self._forks: Forks | None = None
        self._given_up = GivenUp(root)
        self.places = Places(root, self.table, is_in_place)
        self._keeps = True  # on disk what has begun
        self._errands: set[asyncio.Task[None]] = set()
        self._listeners = Listeners(root, self.wake)
        # Held open for life: its end tells the children that the supervisor is gone.
        self._life, self._alive = os.pipe()

    def reload(self, name: str) -> None:
        """Let a queue read its config again, or start with it if it had given up."""
        process = self.table.queue(name)
        if process.state in (Child.FATAL, Child.BACKOFF):
            process.revive()
        elif process.state is Child.PARKED:
            process.wake(time.monotonic())
        elif process.running and (held := self._handles.get((Kind.QUEUE, name))):
            held.send(signal.SIGHUP)
        self.table.wake()

    def wake(self, name: str) -> None:
        """Let a queue start that is parked."""
        self.table.queue(name).wake(time.monotonic())
        self.table.wake()

    # ---- one pass

    def step(self) -> None:
        """Do what is due with every child."""
        now = time.monotonic()
        for key, process in self.table.awake():
            match children.step(process, now):
                case Step.START:
                    self._start(key, process, now)
                case Step.STOP:
                    self._stop(key, process, now)
                case Step.KILL:
                    self._kill(key, process)
        for name in put_away_deleted(self.root, self.table, now):
            self._given_up.forget((Kind.QUEUE, name))
            self._keep(partial(self.places.begun.forget, name))
        up = [each for _, each in self.table.awake() if each.state is Child.UP]
        names = {name for name in map(held_as, up) if name is not None}
        self._keep(partial(self.places.begun.note, names - self.table.deleting.keys()))

    def _keep(self, keep: Callable[[], None]) -> None:
        """Keep on disk what has begun: a next start has to find it. That it cannot be kept
        holds up nothing else."""
        try:
            if self.is_in_place():
                keep()
            self._keeps = True
        except (OSError, RQError) as error:
            if self._keeps:
                log.error("which queues have begun is not kept: %s", error)
            self._keeps = False

    def _start(self, key: Key, process: Process, now: float) -> None:
        if process.kind is Kind.QUEUE and not self._can_fork():
            return
        if process.state is Child.PARKED and self._is_kept(process, now):
            return
        process.started(now)
        process.log_from = handle.log_size(self.root, process)
        self._given_up.note_start(key)
        try:
            name = held_as(process)
            if name is not None and (
                self.places.is_held(name) or self.places.is_elsewhere(process)
            ):
                self._ended(key, children.DISPLACED, displaced.why(name))
            else:
                self._launch(key, process)
        except Exception as error:  # noqa: BLE001 (the pass goes on with the others)
            self._not_started(key, error)

    def _is_kept(self, process: Process, now: float) -> bool:
        """Whether a parked queue cannot start yet: a command checks, moves or restores it.
        That is no failure, and those who have connected wait."""
        if not locks.is_locked(self._lock_of(process.name)):
            return False
        process.wakes_at = now + KEPT_RETRY
        return True

    def _launch(self, key: Key, process: Process) -> None:
        if process.kind is Kind.QUEUE and locks.is_locked(self._lock_of(process.name)):
            self._run_errand(self._adopt_late(process.name))
            return
        log.info("starting %s", logs.fields(kind=process.kind, name=process.name))
        started = self._run(process)
        self._hold(key, process, started)
        started.on_word(lambda word: self._on_word(key, started, word))
        started.on_talk(lambda word: self._on_word(key, started, word))

    def _run(self, process: Process) -> Handle:
        """Start the process of a child, which is not watched yet."""
        if process.kind is Kind.QUEUE:
            if self._forks is None:
                raise OSError("the fork server is gone")
            process.patience = self.table.patience(process.kind)
            listens = self._listeners.of(process.name)
            return Handle(talk=self._forks.ask(process.name, listens))
        if process.kind is Kind.FORKS:
            started, line = handle.run_fork_server(
                self.root.path, handle.log_file(self.root, process)
            )
            try:
                self._forks = Forks(line, self._life, self._act_on)
            except BaseException:
                started.give_up()
                started.close()
                line.close()
                raise
            return started
        log_path = handle.log_file(self.root, process)
        module = HELPERS[process.kind]
        return handle.run_helper(module, self.root.path, self._life, log_path)

    def _not_started(self, key: Key, error: Exception) -> None:
        """Count what could not be started, or not be watched, as an end."""
        if held := self._handles.get(key):
            held.give_up()
        self._ended(key, None, f"cannot be started: {error or type(error).__name__}")

    def _can_fork(self) -> bool:
        return self.table.children[FORKS].state is Child.UP

    def _hold(self, key: Key, process: Process, held: Handle) -> None:
        self._handles[key] = held
        process.pid = held.pid
        if process.kind is Kind.QUEUE:
            process.place = self.places.now(process)
        if held.pid is not None:
            held.on_end(lambda: self._process_gone(key, held))

    def _stop(self, key: Key, process: Process, now: float) -> None:
        process.stopping(now)
        if process.state is Child.STOPPING and key in self._handles:
            self._handles[key].send(signal.SIGTERM)
        self._listen_no_more(process)
        self.table.wake()

    def _kill(self, key: Key, process: Process) -> None:
        process.killed = True
        name = logs.fields(kind=process.kind, name=process.name)
        log.warning("killing %s: it did not start or stop in time", name)
        held = self._handles.get(key)
        if held is None or held.pid is None:
            # There is nothing to kill: the fork server may be stuck. What it forks yet
            # ends with the supervisor.
            self._ended(key, None, "the fork server never started its process")
            return
        held.send(signal.SIGKILL)

    # ---- what happens

    def _act_on(self, answer: forks.Answer) -> None:
        """Act on an answer of the fork server."""
        match answer:
            case forks.Ready():
                self.table.children[FORKS].ready(time.monotonic())
            case forks.Exited():
                self._exited(answer.pid, answer.status)
            case forks.Forked():
                self._forked((Kind.QUEUE, answer.name), answer)
        self.table.wake()

    def _forked(self, key: Key, answer: forks.Forked) -> None:
        held = self._handles.get(key)
        if held is None or held.pid is not None:
            return
        if answer.pid is None:
            self._ended(key, None, f"cannot be forked: {answer.error}")
            return
        process = self.table.children[key]
        try:
            held.is_process(answer.pid)
            self._hold(key, process, held)
        except OSError as error:  # it lives, and is adopted when it can be watched
            self._ended(key, None, f"cannot be watched: {error}")
            return
        if process.state is Child.STOPPING:
            held.send(signal.SIGTERM)

    def _exited(self, pid: int, status: int) -> None:
        for key, held in list(self._handles.items()):
            if held.pid == pid and key[0] is Kind.QUEUE:
                self._ended(key, status, "")

    def _process_gone(self, key: Key, held: Handle) -> None:
        """Note that a process is no more; how it ended may still be on its way."""
        if held.popen:
            self._ended(key, held.status(), "")
        elif held.line or self._forks is None:
            self._ended(key, None, held.error or "ended; its exit status is unknown")
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(STATUS_WAIT, self._unexplained, key, held)

    def _unexplained(self, key: Key, held: Handle) -> None:
        if self._handles.get(key) is held:
            self._ended(key, None, held.error or "ended; its exit status is unknown")

    def _on_word(self, key: Key, held: Handle, word: str) -> None:
        """Act on what a child says of its readiness."""
        process = self.table.children.get(key)
        if word.startswith("FATAL "):
            held.error = word.removeprefix("FATAL ").strip()
        elif word.startswith(parked.WORD):
            self._is_parking(key[1], held, word)
        elif process and process.state is Child.STARTING:
            process.ready(time.monotonic())
            process.held = word.removeprefix("HELD ").strip()
            if process.kind is Kind.QUEUE:
                self._listeners.give_back(process.name)  # it has it
            process.place = self.places.now(process)  # a broker has made it by now
            log.info("up %s", logs.fields(kind=process.kind, name=process.name))
        self.table.wake()

    def _is_parking(self, name: str, held: Handle, word: str) -> None:
        """Keep the socket of a queue that ends because it has nothing to do."""
        self.table.queue(name).parking(time.monotonic())
        if (sock := held.take_listener()) is None:
            return  # no descriptor was left for it: the queue starts again
        handing = parked.handed_over(word)
        self._listeners.hold(name, sock, handing.end)
        held.parks = True
        self._listeners.tell_if_full()
        if not self._listeners.has_room:
            held.wakes_in = 0.0
        elif handing.wakes_at is not None:
            held.wakes_in = max(0.0, handing.wakes_at - time.time())

    def _parked(self, key: Key, held: Handle | None, status: int | None) -> bool:
        """Whether a process has ended to be parked; note it."""
        process = self.table.children[key]
        if held is None or not held.parks or status or process.state is not Child.UP:
            return False
        held.close()
        process.parked(time.monotonic(), held.wakes_in)
        self._given_up.note_end(key, gave_up=False)
        self._listeners.watch(process.name)
        log.info("parked %s", logs.fields(queue=process.name))
        self.table.wake()
        return True

    def _ended(self, key: Key, status: int | None, reason: str) -> None:
        process = self.table.children[key]
        if key in self._handles:  # its last word may come behind the news of its end
            self._handles[key].hear()
        held = self._handles.pop(key, None)
        if self._parked(key, held, status):
            return
        error = held.error if held else ""
        if held:
            held.close()
        if key[0] is Kind.FORKS:
            self._forks_ended()
        reason = reason or error or handle.how_ended(self.root, process, status)
        name = held_as(process)
        if name and (status == children.DISPLACED or self._vanished(key)):
            reason, status = self.places.hold_back(name), children.DISPLACED
        process.ended(time.monotonic(), status, reason)
        self._given_up.note_end(key, gave_up=process.state is Child.FATAL)
        process.place = None
        self._listen_no_more(process)
        self._answer_no_more(process)
        if status == children.DISPLACED and process.kind is Kind.QUEUE:
            self.table.forget_if_gone(process.name)
        level = logging.INFO if process.state is Child.DOWN else logging.WARNING
        name = logs.fields(kind=process.kind, name=process.name, state=process.state)
        log.log(level, "ended %s", name + " " + logs.fields(reason=reason))
        self.table.wake()

    def _listen_no_more(self, process: Process) -> None:
        """Let those be refused who connect to a queue that does not start again."""
        is_down = process.state is Child.DOWN and not process.wanted
        if process.kind is Kind.QUEUE and (is_down or process.state is Child.FATAL):
            self._listeners.end(process.name)

    def _answer_no_more(self, process: Process) -> None:
        """Let it be asked, in vain, that fails again and again: what it left when it was
        parked, all as it was, would show a queue that is well."""
        fails = process.state is Child.FATAL or process.failures > 1
        if process.kind is Kind.QUEUE and fails:
            parked.forget(self.root.queue(process.name))

    def _vanished(self, key: Key) -> bool:
        process = self.table.children[key]
        is_deleting = process.kind is Kind.QUEUE and process.name in self.table.deleting
        return not is_deleting and self.places.is_elsewhere(process)

    def _forks_ended(self) -> None:
        """Go on without a fork server: what it forked lives, what was asked is lost."""
        if self._forks:
            self._forks.close()
            self._forks = None
        for key, held in list(self._handles.items()):
            if key[0] is Kind.QUEUE and held.pid is None:
                self._ended(
                    key, None, "the fork server ended before it started its process"
                )

    # ---- queues that gave up, that lived before

    def try_changed(self) -> None:
        """Start what had given up and whose config has changed since."""
        for key in self._given_up.take_changed():
            process = self.table.children.get(key)
            if process and process.state is Child.FATAL:
                process.revive()
                self.table.wake()

    def adopt(self) -> None:
        """Take over the queues that live from a supervisor before this one."""
        queues = self.table.queues().items()
        idle = (name for name, process in queues if not process.running)
        sockets = ((name, self.root.queue(name).socket) for name in idle)
        there = {name: path for name, path in sockets if os.path.exists(path)}
        # Threads, since a stuck queue may take its whole time-out; they end here.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            handles = list(pool.map(_adopted_if_there, there.values()))
        for name, held in zip(there, handles, strict=True):
            if held:
                self._adopted(name, held)

    def park_again(self) -> None:
        """Let queues stay parked that were when RQ stopped, if nothing has happened since."""
        try:
            held = self.places.all_held()
        except (OSError, RQError):
            return  # the start of each says what is wrong
        boot = processes.boot_id()
        for name, process in self.table.queues().items():
            is_down = process.state is Child.DOWN and process.wanted
            if (
                is_down
                and name not in held
                and self._listeners.listen_again(process, boot)
            ):
                process.place = self.places.now(process)

    async def _adopt_late(self, name: str) -> None:
        """Adopt a process that owns a queue and that we did not start; it may be ending."""
        try:
            held = await asyncio.to_thread(handle.adopt, self.root.queue(name).socket)
            self._take_late(name, held)
        except Exception as error:  # noqa: BLE001 (the pass goes on with the others)
            self._not_started((Kind.QUEUE, name), error)
        self.table.wake()

    def _take_late(self, name: str, held: Handle | None) -> None:
        process = self.table.queue(name)
        if held is None:
            why = "another process owns this queue and does not answer"
            self._ended((Kind.QUEUE, name), None, why)
        elif process.state is Child.STARTING:
            process.ready(time.monotonic())
            self._hold((Kind.QUEUE, name), process, held)
            log.info("adopted %s", logs.fields(queue=name, pid=held.pid))
        else:
            self._hold((Kind.QUEUE, name), process, held)
            held.send(signal.SIGTERM)

    def _run_errand(self, errand: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _lock_of(self, name: str) -> Path:
        return self.root.queue(name).lock

    def _adopted(self, name: str, held: Handle) -> None:
        process = self.table.queue(name)
        now = time.monotonic()
        process.started(now)
        process.ready(now)
        self._hold((Kind.QUEUE, name), process, held)
        log.info("adopted %s", logs.fields(queue=name, pid=held.pid))

    def close(self) -> None:
        """Give everything back, when all children are down."""
        self._keep(self.places.begun.keep)
        self._listeners.close()
        for held in self._handles.values():
            held.close()
        for fd in (self._life, self._alive):
            os.close(fd)


def _adopted_if_there(socket: Path) -> Handle | None:
    """Adopt a queue at the start; what cannot be watched now is asked again."""
    try:
        return handle.adopt(socket)
    except OSError as error:
        log.warning("a queue is not adopted yet: %s", logs.fields(reason=error))
        return None


# ---- queues that are deleted, or whose directory is gone


def put_away_deleted(root: Root, table: Table, now: float) -> list[str]:
    """Move deleted queues that are down to the trash, forget those that are gone;
    return the names of the queues that were moved."""
    due = [name for name, at in table.deleting.items() if at <= now]
    moved = [
        name
        for name in due
        if table.is_down(name) and _is_moved(root, table, name, now)
    ]
    for name in [*moved, *filter(table.is_down, list(table.forgetting))]:
        table.forget(name)
    return moved


def _is_moved(root: Root, table: Table, name: str, now: float) -> bool:
    """Move a queue to the trash; False when it cannot be moved yet."""
    queue = root.queue(name)
    try:
        if queue.path.is_dir():
            log.info("moved to %s", trash.put(root, queue))
    except (OSError, Refused) as error:
        log.warning("queue %s is not yet in the trash: %s", name, error)
        table.deleting[name] = now + LOCK_RETRY
        return False
    return True
