"""The supervisor's program: one instance per root, its signals, its socket, its end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from rq import config, logs
from rq.access import owner, sockets
from rq.config import admin, broker, bundled, files
from rq.config.settings import RootConfig
from rq.errors import BadConfig, Refused, RQError
from rq.layout import Root
from rq.proc import daemon, descriptors, locks, turnlimit
from rq.rpc import client
from rq.rpc import server as control
from rq.supervisor import ancestor, definitions, fingerprint
from rq.supervisor.children import Kind
from rq.supervisor.commands import Commands
from rq.supervisor.minder import Minder
from rq.supervisor.table import HELPERS
from rq.words.states import Child

SERVES_BY = 60.0  # seconds from the start after which systemd need not wait for queues
LOOK_AGAIN = 5.0  # seconds between looks at what no event tells
DISPLACED = 4  # exit status of one whose root, or config/, is gone or another
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    kept = [options.ready_fd] if options.ready_fd is not None else []
    descriptors.own_descriptors(kept)
    try:
        root = config.find_root(options.root)
        if owner.act_as_owner(root, kept):
            # Anew: what was root until now stays closed to /proc, and so would all that
            # is forked from it.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        settings = config.read_root(root)
        files.make_root(root)
        held = _lock(root)
        ancestor.take_over(root)
    except (RQError, OSError) as error:
        _say(options.ready_fd, f"FATAL {error}\n")
        sys.stderr.write(f"rq-mgr: {error}\n")
        return 1
    try:
        _settle(root, options.foreground)
        _renew_links(root)
        _allow_earlier_hosts(root)
        turnlimit.watch()
        program = _Program(root, settings, options, held)
        asyncio.run(program.run())
        return DISPLACED if program.is_displaced else 0
    finally:
        if locks.is_at(held, root.supervisor_lock):
            files.remove_link(root.supervisor_pid)
        os.close(held)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rq-mgr", description="Run the supervisor of one root until it is stopped."
    )
    parser.add_argument("--root", metavar="DIR", help="the root; else $RQ_ROOT")
    parser.add_argument(
        "--foreground", action="store_true", help="log to standard error"
    )
    parser.add_argument(
        "--ready-fd", type=int, metavar="N", help="write a line here when it serves"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[*HELPERS],
        metavar="HELPER",
        help="do not start one of %(choices)s, whatever the config says",
    )
    return parser.parse_args(argv)


def _lock(root: Root) -> int:
    held = locks.lock(root.supervisor_lock)
    if held is None:
        raise Refused(f"RQ already runs in {root.path}, as process {_pid_of(root)}")
    try:
        ancestor.refuse(root)
    except BaseException:
        os.close(held)
        raise
    files.write_state(root.supervisor_pid, os.getpid())
    return held


def _pid_of(root: Root) -> str:
    try:
        return root.supervisor_pid.read_text().strip()
    except OSError:
        return "unknown"


def _settle(root: Root, foreground: bool) -> None:
    """Let go of the starter's directory, terminal and standard files."""
    os.chdir("/")
    os.umask(0o027)
    daemon.title("rq-mgr")
    descriptors.raise_descriptor_limit()
    if foreground:
        logs.open_log("rq-mgr", None)
        return
    path = root.log / "queuemgr.log"
    logs.open_log("rq-mgr", path)
    # What a child prints without a log of its own, say a traceback, ends up here too.
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    for fd, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(fd, target)
    os.close(null)
    os.close(out)


def _renew_links(root: Root) -> None:
    """Before any queue starts; what fails here keeps none from it."""
    try:
        renewed = bundled.renew(root)
    except (RQError, OSError):
        log.exception("links to queues that come with RQ could not be renewed")
        return
    if renewed:
        log.info("now of %s: %s", bundled.BUNDLED, ", ".join(renewed))


def _allow_earlier_hosts(root: Root) -> None:
    """Before any child takes a message; what fails here keeps no queue from starting."""
    if root.relay_hosts.exists():
        return
    from rq.outbound import past_hosts  # once in the life of a root

    try:
        past_hosts.allow_once(root)
    except (RQError, OSError):
        log.exception(
            "the hosts that the relay sent to before could not be allowed: "
            "`rq relay allow HOST` allows one"
        )


def _say(fd: int | None, text: str) -> None:
    if fd is None:
        return
    try:
        os.write(fd, text.encode())
        os.close(fd)
    except OSError as error:
        log.warning(
            "the process that started the supervisor does not wait for it: %s",
            error,
        )


class _Program:
    """The supervisor from start to stop."""

    def __init__(
        self, root: Root, settings: RootConfig, options: argparse.Namespace, lock: int
    ) -> None:
        self._root = root
        self._settings = settings
        self._lock = lock
        self._look_at = 0.0  # when the lock is looked at again (monotonic)
        self.is_displaced = False
        self._minder = Minder(root, settings.grace, self._is_in_place)
        self._table = self._minder.table
        self._commands = Commands(self._minder, settings, fingerprint.of_source())
        self._pauses = Pauses(root, self._commands.send_wake)
        self._ready_fd: int | None = options.ready_fd
        self._without: list[str] = options.without
        self._signals: list[signal.Signals] = []
        self._stopping = self._is_ready = False
        self._serves_by = time.monotonic() + SERVES_BY
        self._status = ""
        self._beat = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6  # seconds

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (*_STOP_SIGNALS, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        sock = client.listen(self._root.supervisor_socket)
        policy = sockets.policy(sockets.SUPERVISOR_OTHERS, self._settings.admin_group)
        server = control.Server(sock, policy, self._commands.answer)
        self._minder.places.hold_lost()
        self._table.mind_queues()
        for name in definitions.half_deleted(self._root):
            self._table.delete(name)
        self._minder.adopt()
        self._minder.park_again()
        broker = _wants_broker(self._root)
        self._table.mind_helpers(self._settings, broker, self._without)
        server.start()
        log.info("started %s", logs.fields(root=self._root.path, pid=os.getpid()))
        _say(self._ready_fd, "\n")
        try:
            await self._loop()
        finally:
            server.close()
            if self._is_in_place():
                files.remove_link(self._root.supervisor_socket)
            self._minder.close()
        log.info("stopped")

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals.append(number)
        self._table.wake()

    async def _loop(self) -> None:
        while True:
            seen = self._table.changes
            try:
                if self._pass():
                    return
            except Exception:
                log.exception("a pass failed; the next one is in a second")
                await asyncio.sleep(1.0)
            await self._table.change(seen, self._timeout())

    def _timeout(self) -> float:
        wakes = self._table.next_wake(), self._pauses.away()
        times = [LOOK_AGAIN, *wakes, self._beat or None]
        return min(seconds for seconds in times if seconds is not None)

    def _pass(self) -> bool:
        """Do what is due; True when all is done and the program may end."""
        for number in _take(self._signals):
            self._obey(number)
        if self._commands.stop_asked and not self._stopping:
            self._begin_stop("shutdown")
        self._look_at_place()
        self._minder.try_changed()
        self._pauses.look()
        done = self._stopping and self._continue_stop()
        self._minder.step()
        self._tell()
        return done

    def _is_in_place(self) -> bool:
        return locks.is_at(self._lock, self._root.supervisor_lock)

    def _look_at_place(self) -> None:
        """Stop when the lock is not the one that a next supervisor would take: config/, or
        the whole root, was removed, moved or replaced, and two would mind the same queues
        and fire the same timers."""
        now = time.monotonic()
        if now < self._look_at or self.is_displaced:
            return
        self._look_at = now + LOOK_AGAIN
        if not self._is_in_place():
            self.is_displaced = True
            log.error(
                "%s is gone, or another: the root or its config/ was removed, moved or "
                "replaced while RQ ran; all that this supervisor runs is stopped: see what "
                "lies there now, then start RQ again",
                self._root.supervisor_lock,
            )
            self._begin_stop("the root is not ours any more")

    def _obey(self, number: signal.Signals) -> None:
        if number in _STOP_SIGNALS:
            self._begin_stop(number.name)
            return
        log.info("SIGHUP: reading the configs again")
        try:
            changed = config.read_root(self._root)
        except BadConfig as error:
            log.error("the old config stays in force: %s", error)
            changed = self._settings
        if changed != self._settings:
            self._settings = changed
            self._commands.use(changed)
            self._table.use(changed)
        self._table.mind_queues()
        for name in self._table.queues():
            self._minder.reload(name)

    def _begin_stop(self, why: str) -> None:
        if self._stopping:
            return
        self._stopping = True
        log.info("stopping: %s", why)
        daemon.notify("STOPPING=1")
        self._table.want(set(HELPERS), False)

    def _continue_stop(self) -> bool:
        """Stop the next row of children when the last is down; True at the end."""
        rows: list[set[Kind]] = [set(HELPERS), {Kind.QUEUE}, {Kind.FORKS}]
        for row in rows:
            self._table.want(row, False)
            if not self._table.all_down(row):
                return False
        return True

    def _tell(self) -> None:
        """Tell systemd that we live, and how the queues are when that changed."""
        if self._beat:
            daemon.notify("WATCHDOG=1")
        states = [process.state for process in self._table.queues().values()]
        text = f"{states.count(Child.UP)} of {len(states)} queues up"
        if text != self._status:
            self._status = text
            daemon.notify(f"STATUS={text}")
        self._tell_ready()

    def _tell_ready(self) -> None:
        """Tell systemd that we serve: what is started after RQ sends, and finds queues that
        answer. A queue that fails, or has very much to read, does not keep the others."""
        is_late = time.monotonic() > self._serves_by
        if self._is_ready or not (is_late or self._table.is_tried()):
            return
        self._is_ready = True
        daemon.notify("READY=1")


def _wants_broker(root: Root) -> bool:
    try:
        return broker.read(root.broker_config).enabled
    except BadConfig as error:
        log.error("the broker stays down: %s", error)
        return False


def _take(signals: list[signal.Signals]) -> list[signal.Signals]:
    taken = list(signals)
    signals.clear()
    return taken


# ---- pauses that end by themselves


class Pauses:
    """The pauses of a root that end by themselves. Each queue goes on at that moment
    without being told. The file goes, too, so that a clock that is put back does not pause
    it again.
    """

    def __init__(self, root: Root, wake: Callable[[str], None]) -> None:
        """`wake` tells a queue that something has changed."""
        self._root = root
        self._wake = wake
        self._soonest: float | None = None  # epoch seconds

    def look(self) -> None:
        """End what is over."""
        now = time.time()
        try:
            ends = admin.ends(self._root)
        except OSError as error:
            log.warning("pauses cannot be read now: %s", error)
            return
        for name, until in ends.items():
            if until <= now:
                self._end(name)
        self._soonest = min((at for at in ends.values() if at > now), default=None)

    def away(self) -> float | None:
        """Return in how many seconds the next one is over; None: none ends."""
        if self._soonest is None:
            return None
        return max(0.01, self._soonest - time.time())

    def _end(self, name: str) -> None:
        try:
            admin.resume(self._root, name)
        except OSError as error:  # it counts no more all the same
            log.warning("%s", logs.fields(queue=name, wanted="resume", reason=error))
        else:
            log.info("a pause is over: %s", logs.fields(queue=name))
        self._wake(name)
