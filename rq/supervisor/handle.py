"""A running child as the machine knows it: pid, descriptors, how it is started and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rq import logs
from rq.errors import RQError
from rq.layout import Root
from rq.proc import processes
from rq.proc.spawn import signal_name
from rq.rpc import client
from rq.supervisor.children import Kind, Process

MIND_TIMEOUT = 3.0  # seconds for a live queue to answer a new supervisor
_LOG_TAIL = 2048  # bytes


def _nothing() -> None:
    """There is nothing to hear."""


@dataclass(slots=True)
class Handle:
    """What the supervisor holds of a running child; `close` gives it back."""

    pid: int | None = None
    pidfd: int | None = None
    ready: int | None = None  # read end; a helper says there that it is ready
    talk: socket.socket | None = None  # with a queue that we have started
    listener: socket.socket | None = (
        None  # that the queue has handed over, to be parked
    )
    parks: bool = False  # it ends because it has nothing to do …
    wakes_in: float | None = None  # … for so many seconds; None: until it is woken
    hear: Callable[[], None] = _nothing  # what a queue has said and was not read yet
    error: str = ""  # why it is not, in its own words
    popen: subprocess.Popen[bytes] | None = None  # of children that were exec'ed
    line: client.Connection | None = None  # to an adopted queue, its sign of our life

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for fd in (self.pidfd, self.ready):
            if fd is not None:
                loop.remove_reader(fd)
                os.close(fd)
        self.pidfd = self.ready = None
        if self.talk is not None:
            self.hear = _nothing
            loop.remove_reader(self.talk)
            self.talk.close()
        if self.listener is not None:
            self.listener.close()
        if self.line:
            self.line.close()

    def take_listener(self) -> socket.socket | None:
        """Return what the queue has handed over, which is the caller's from now on."""
        sock, self.listener = self.listener, None
        return sock

    def is_process(self, pid: int) -> None:
        """Take `pid`, which was just started, as the process; OSError when it cannot be
        watched."""
        self.pid = pid
        with contextlib.suppress(ProcessLookupError):  # it has ended, and was reaped
            self.pidfd = processes.open_pidfd(pid)

    def on_end(self, call: Callable[[], None]) -> None:
        """Let `call` be called when the process has ended."""
        loop = asyncio.get_running_loop()
        pidfd = self.pidfd
        if pidfd is None:
            loop.call_soon(call)
            return

        def ended() -> None:
            loop.remove_reader(pidfd)
            call()

        loop.add_reader(pidfd, ended)

    def on_word(self, call: Callable[[str], None]) -> None:
        """Let `call` be called with what the child says of its readiness."""
        ready = self.ready
        if ready is None:
            return
        loop = asyncio.get_running_loop()

        def readable() -> None:
            data = os.read(ready, 4096)
            loop.remove_reader(ready)
            os.close(ready)
            self.ready = None
            if data:
                call(data.decode("utf-8", "replace"))

        loop.add_reader(ready, readable)

    def on_talk(self, call: Callable[[str], None]) -> None:
        """Let `call` be called with each word of a queue, as long as it lives."""
        talk = self.talk
        if talk is None:
            return
        loop = asyncio.get_running_loop()

        def heard() -> None:
            try:
                data, fds, _, _ = socket.recv_fds(talk, 4096, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if fds:
                self.listener = socket.socket(fileno=fds[0])
            if data:
                call(data.decode("utf-8", "replace"))
            else:
                loop.remove_reader(talk)
                self.hear = _nothing

        self.hear = heard
        loop.add_reader(talk, heard)

    def send(self, number: signal.Signals) -> None:
        """Signal exactly this process, if it still is."""
        with contextlib.suppress(ProcessLookupError):
            if self.pidfd is not None and self.pid is not None:
                processes.signal_one(self.pidfd, self.pid, number)
            elif self.popen is not None:
                self.popen.send_signal(number)

    def give_up(self) -> None:
        """Kill an exec'ed child that cannot be watched, and reap it."""
        if self.popen is not None:
            self.popen.kill()
            self.popen.wait()

    def status(self) -> int | None:
        """Return the exit status of an exec'ed child that has ended."""
        return self.popen.wait() if self.popen else None


def launch(
    words: list[str], stdin: int, printed: int, kept: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Run a module of RQ, by its name and its words, with this interpreter and in a session
    of its own; it keeps the descriptors `kept`."""
    isolated = ["-I"] if sys.flags.isolated else []
    return subprocess.Popen(
        [sys.executable, *isolated, "-m", *words],
        stdin=stdin,
        stdout=printed,
        stderr=printed,
        pass_fds=kept,
        start_new_session=True,
        cwd="/",
    )


@contextlib.contextmanager
def _printing_to(log: Path) -> Iterator[int]:
    """Give what a child prints to: its own log, so that a traceback from before it has
    opened that is where people look. Without a log it is ours."""
    try:
        log.parent.mkdir(mode=0o750, exist_ok=True)
        fd = logs.open_end(log)
    except OSError:
        yield 2
        return
    try:
        yield fd
    finally:
        os.close(fd)


def run_helper(module: str, root: Path, life: int, log: Path) -> Handle:
    """Start a helper program, which ends when the write end of `life` closes."""
    ready, theirs = os.pipe()
    args = ["--root", str(root), "--ready-fd", str(theirs), "--life-fd", str(life)]
    words, kept = [module, *args], (theirs, life)
    try:
        with _printing_to(log) as printed:
            popen = launch(words, subprocess.DEVNULL, printed, kept)
    except OSError:
        os.close(ready)
        raise
    finally:
        os.close(theirs)
    return _watched(Handle(ready=ready, popen=popen))


def _watched(handle: Handle) -> Handle:
    """Watch what was just exec'ed; it does not live on when that fails."""
    assert handle.popen is not None
    try:
        handle.is_process(handle.popen.pid)
    except BaseException:
        handle.give_up()
        handle.close()
        raise
    return handle


def run_fork_server(root: Path, log: Path) -> tuple[Handle, socket.socket]:
    """Start the fork server; return it and the socket to ask it over."""
    words = ["rq.supervisor.forkserver", str(root)]
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            with _printing_to(log) as printed:
                popen = launch(words, theirs.fileno(), printed)
        except OSError:
            ours.close()
            raise
    try:
        handle = _watched(Handle(popen=popen))
    except BaseException:
        ours.close()
        raise
    ours.setblocking(False)
    return handle, ours


def adopt(socket_path: Path) -> Handle | None:
    """Take over a queue process that another supervisor started; None if there is none.

    OSError: there is one, and it cannot be watched.
    """
    try:
        line = client.Connection(socket_path, MIND_TIMEOUT)
    except RQError:
        return None
    try:
        word, pid = line.ask("mind")
    except (RQError, ValueError, TypeError):
        word, pid = "fail", None
    handle = Handle(line=line)
    try:
        if word == "ok" and isinstance(pid, int):
            handle.is_process(pid)
    except OSError:
        line.close()
        raise
    if handle.pidfd is None:
        line.close()
        return None
    return handle


# ---- how it has ended, in words


def log_file(root: Root, process: Process) -> Path:
    """Return the log of a child, where what it prints goes, too."""
    is_queue = process.kind is Kind.QUEUE
    return root.log / (
        f"queue-{process.name}.log" if is_queue else f"{process.name}.log"
    )


def log_size(root: Root, process: Process) -> int:
    """Return how long a child's log is now: what is in it was said before."""
    try:
        return log_file(root, process).stat().st_size
    except OSError:
        return 0


def how_ended(root: Root, process: Process, status: int | None) -> str:
    """Return how a child ended; `status` is negative for a signal, None if unknown."""
    if status is None or status < 0:
        return f"was killed by {signal_name(-status)}" if status else "ended"
    text = f"ended with status {status}"
    last = _last_line(root, process) if status else ""
    return f"{text}; the last line of its log: {last}" if last else text


def _last_line(root: Root, process: Process) -> str:
    """Return the last line that this start of the child has logged, "" when none."""
    try:
        with log_file(root, process).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A log that is shorter than it was has been rotated since.
            since = process.log_from if process.log_from <= size else 0
            file.seek(max(since, size - _LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").rstrip("\n").split("\n")
    except OSError:
        return ""
    return lines[-1].strip()[:300]
