"""One run of a script: started, listened to, ended; phases starting, running, finishing.

It knows descriptors and processes, not messages: what it hears goes to its owner by
callbacks, all on the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from rq import pipe, proc
from rq.layout import LEASE_FD
from rq.message import Message
from rq.pipe import Report
from rq.queues.outcome import Said

_READ = 64 * 1024
_DRAIN = 16 * 1024 * 1024  # bytes taken at the end from a pipe that never runs dry


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is needed to start a worker."""

    message: Message
    argv: list[str]
    script: str  # real path
    env: dict[str, str]
    directory: str  # absolute: the worker's directory
    slot: int
    lease: int  # locked descriptor
    nice: int
    null: int


class Worker:
    """A script at work on a message."""

    def __init__(
        self,
        plan: Plan,
        loop: asyncio.AbstractEventLoop,
        on_report: Callable[[Worker, Report], None],
        on_exit: Callable[[Worker], None],
    ) -> None:
        """Start it; OSError as execve gives it."""
        self.message = plan.message
        self.slot = plan.slot
        self.lease = plan.env[proc.LEASE_NAME]
        self.said = Said()
        self.began = time.monotonic()
        self.began_at = time.time()
        self.phase = "starting"
        self.ending: proc.Ending | None = None
        self.dups = 0  # questions that are not yet answered
        self.cause: str | None = None  # why RQ itself is ending it
        self._loop = loop
        self._on_report = on_report
        self._on_exit = on_exit
        self._lines = pipe.Lines()
        self._log = f"{plan.directory}/stdio.log"
        self._reader = self._answers = -1
        self.pid = self._start(plan)
        self.pidfd = self._watched()
        loop.add_reader(self.pidfd, self._exited)
        loop.add_reader(self._reader, self._readable)

    @property
    def msg_id(self) -> str:
        return self.message.msg_id

    def _start(self, plan: Plan) -> int:
        head = _open_log(self._log, os.O_CREAT)
        log = _open_log(self._log, os.O_APPEND)
        self._reader, write = os.pipe2(os.O_CLOEXEC)
        read, self._answers = os.pipe2(os.O_CLOEXEC)
        try:
            at = os.lseek(head, 0, os.SEEK_END)
            began = f"{_now()} - RQ START - {plan.script}"
            os.write(head, _head(0, began))
            pid = proc.spawn(
                proc.Start(
                    argv=plan.argv,
                    env=plan.env,
                    directory=plan.directory,
                    null=plan.null,
                    log=log,
                    write=write,
                    read=read,
                    lease=plan.lease,
                    lease_as=LEASE_FD,
                )
            )
            os.pwrite(head, _head(pid, began), at)
        except BaseException:
            os.close(self._reader)
            os.close(self._answers)
            raise
        finally:
            for fd in (head, log, write, read):
                os.close(fd)
        if plan.nice:
            proc.be_nice(pid, plan.nice)
        os.set_blocking(self._reader, False)
        os.set_blocking(self._answers, False)
        return pid

    def _watched(self) -> int:
        """Return the pidfd; a script that cannot be watched must not go on."""
        try:
            return proc.open_pidfd(self.pid)
        except OSError:
            proc.signal_group(self.pid, KILL)
            os.waitpid(self.pid, 0)
            os.close(self._reader)
            os.close(self._answers)
            raise

    # ---- while it runs

    def _readable(self) -> None:
        """Take one chunk; at the end of the stream stop looking at the descriptor."""
        try:
            data = os.read(self._reader, _READ)
        except BlockingIOError:
            return
        if data:
            self._hear(data)
        else:
            self._loop.remove_reader(self._reader)

    def _hear(self, data: bytes) -> None:
        self.phase = "running"
        for text in self._lines.feed(data):
            self._report(text)

    def _report(self, text: bytes) -> None:
        report = pipe.parse(text)
        if report is not None:
            self._on_report(self, report)

    def answer(self, line: bytes) -> None:
        """Send a line to the script; one that does not read loses it."""
        with contextlib.suppress(OSError):
            os.write(self._answers, line)

    def signal(self, sig: int) -> None:
        """Signal its process group; the leader is not reaped, so the number is its."""
        if self.ending is None:
            proc.signal_group(self.pid, sig)

    def signal_left(self, sig: int) -> None:
        """Signal what is left of its group, if anything: else the number is free."""
        if self.has_children():
            proc.signal_group(self.pid, sig)

    # ---- when it ends

    def _exited(self) -> None:
        ending = proc.reap(self.pid)
        if ending is None:
            return
        self.phase = "finishing"
        self.ending = ending
        self._loop.remove_reader(self.pidfd)
        self._loop.remove_reader(self._reader)
        os.close(self.pidfd)
        self._drain()
        self._on_exit(self)

    def _drain(self) -> None:
        """Read what is left in the pipe; a child that holds it open is not waited for."""
        left = _DRAIN
        while left > 0:
            try:
                data = os.read(self._reader, _READ)
            except BlockingIOError:
                break
            if not data:
                break
            left -= len(data)
            self._hear(data)
        for text in self._lines.end():
            self._report(text)
        os.close(self._reader)

    def close(self) -> None:
        """Write the last line of the log; after the last answer."""
        os.close(self._answers)
        ending = self.ending
        if ending is None:
            return
        how = f"exit {ending.exit}" if ending.signal is None else ending.signal
        line = f"{self.pid} - {_now()} - RQ END - {how} - {self.run_seconds:.3f} s\n"
        with contextlib.suppress(OSError):
            fd = _open_log(self._log, os.O_APPEND)
            os.write(fd, line.encode())
            os.close(fd)

    @property
    def run_seconds(self) -> float:
        return time.monotonic() - self.began

    def has_children(self) -> bool:
        """Whether something of its group may live on; cheap, and never a false no."""
        return proc.group_lives(self.pid)


def _open_log(path: str, flags: int) -> int:
    """Open a log, which an earlier attempt may have replaced by anything."""
    # Non-blocking: opening a fifo would wait for a reader.
    flags |= os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o640)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def _head(pid: int, began: str) -> bytes:
    """Return the first lines of a run in its log, of one length for every pid: the pid
    is known only when the script may already have written behind them."""
    return f"\n{f'{pid} - {began}':<{len(began) + 10}}\n".encode()


def _now() -> str:
    return _moment(int(time.time()))


@functools.lru_cache(maxsize=2)
def _moment(seconds: int) -> str:
    when = datetime.fromtimestamp(seconds, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S %z")


def find_program(argv: list[str], path: str) -> list[str]:
    """Return `argv` with its program found on `path`; FileNotFoundError if it is not."""
    if "/" in argv[0]:
        return argv
    found = shutil.which(argv[0], path=path)
    if found is None:
        raise FileNotFoundError(2, "no such program", argv[0])
    return [found, *argv[1:]]


TERM, KILL = signal.SIGTERM, signal.SIGKILL
