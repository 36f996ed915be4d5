"""A started script: its process and its pipes; lines come out, bytes go in.

It knows nothing of messages. What it hears goes to its owner by callbacks, all on the
loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import shutil
import signal
import sys
import termios
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rq.layout import LEASE_FD
from rq.logs import fields
from rq.message.limits import NONE, Limits
from rq.proc import closing, processes, rlimits, spawn
from rq.proc.cgroups import Group
from rq.proc.descriptors import close_all
from rq.proc.family import Family, wait_for_group
from rq.scripts import pipe, program_file
from rq.scripts.run_as import AS_RQ, RunAs

# Becomes the script once its limits hold: until then it waits for a line.
_GATE = ("/bin/sh", "-c", 'read -r _ <&4 && exec "$@"', "sh")
TERM, KILL = signal.SIGTERM, signal.SIGKILL
_PAGE = 4096  # bytes that are heard in one turn: as lines of one they take long
_READ = 64 * 1024
_DRAIN = 16 * 1024 * 1024  # bytes taken at the end from a pipe that never runs dry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a script is started with; descriptors are the caller's."""

    argv: list[str]
    env: Mapping[str, str]
    directory: int | str  # open, or absolute
    output: int  # becomes descriptors 1 and 2
    lease: int  # locked
    nice: int
    family: Family
    limits: Limits = NONE
    run_as: RunAs = AS_RQ


class Script:
    """A process that was started, until it has ended."""

    def __init__(
        self,
        plan: Plan,
        loop: asyncio.AbstractEventLoop,
        on_line: Callable[[bytes], None],
        on_exit: Callable[[], None],
    ) -> None:
        """Start it; OSError as execve gives it."""
        self.termination: spawn.Termination | None = None
        self._loop = loop
        self._on_line = on_line
        self._on_exit = on_exit
        self._lines = pipe.Lines()
        self._unsent = b""
        self._paused = self._has_written = False
        self._reader = self._writer = -1
        self.oom_kills = 0  # known when it has ended
        self._group: Group | None = None
        self._family = plan.family
        self.pid = self._start(plan)
        self._family.began(self.pid)
        self.pidfd = self._watched()
        closing.watch(loop, self.pidfd, self._exited)
        closing.watch(loop, self._reader, self._readable)

    def _start(self, plan: Plan) -> int:
        self._reader, write = os.pipe2(os.O_CLOEXEC)
        try:
            read, self._writer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(self._reader)
            os.close(write)
            raise
        try:
            give((write, read, plan.lease), plan.run_as)
            argv, env = _words(plan)
            pid = spawn.spawn(
                spawn.Start(
                    argv=argv,
                    env=env,
                    directory=plan.directory,
                    log=plan.output,
                    write=write,
                    read=read,
                    lease=plan.lease,
                    lease_as=LEASE_FD,
                    session=plan.run_as.user is not None,
                )
            )
        except BaseException:
            os.close(self._reader)
            os.close(self._writer)
            raise
        finally:
            close_all((write, read))
        if plan.limits.of_processes:
            self._group = rlimits.apply(pid, plan.limits)
            with contextlib.suppress(
                BrokenPipeError
            ):  # its end is heard as any other's
                os.write(self._writer, b"\n")  # to _GATE
        if plan.nice:
            spawn.be_nice(pid, plan.nice)
        os.set_blocking(self._reader, False)
        return pid

    def _watched(self) -> int:
        """Return the pidfd; a script that cannot be watched must not go on."""
        try:
            return processes.open_pidfd(self.pid)
        except OSError:
            spawn.signal_group(self.pid, KILL)
            os.waitpid(self.pid, 0)
            self._family.ended(self.pid)
            os.close(self._reader)
            os.close(self._writer)
            raise

    # ---- out of it

    def _readable(self) -> None:
        """Take one page; at the end of the stream stop looking at the descriptor."""
        try:
            data = os.read(self._reader, _PAGE)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._reader)
        for text in self._lines.feed(data):
            self._on_line(text)

    def _page(self, size: int = _PAGE) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._reader, size)
        return b""

    def _hear_end(self, data: bytes, left: int) -> None:
        """Take a page of what it had said when it ended, of which `left` bytes are still
        in the pipe; a process that keeps the pipe open is not waited for."""
        for text in self._lines.feed(data):
            self._on_line(text)
        # Not until it is empty: a child of the script may fill it again and again.
        if left:
            self._loop.call_soon(self._hear_rest, left)
            return
        for text in self._lines.end():
            self._on_line(text)
        self._on_exit()

    def _hear_rest(self, left: int) -> None:
        data = self._page(min(_PAGE, left))
        left = left - len(data) if data else 0
        if not left:
            os.close(self._reader)
        self._hear_end(data, left)

    def _held(self) -> int:
        held = _held(self._reader)
        return _READ if held is None else held

    def pause(self) -> None:
        """Take no more lines for now; they wait in the pipe."""
        if not self._paused and self.termination is None:
            self._paused = True
            self._loop.remove_reader(self._reader)

    def resume(self) -> None:
        if self._paused and self.termination is None:
            self._paused = False
            self._loop.add_reader(self._reader, self._readable)

    # ---- into it

    def _write(self, data: bytes) -> int:
        """Write to the script, who need not read; most are never told anything."""
        if not self._has_written:
            self._has_written = True
            os.set_blocking(self._writer, False)
        return os.write(self._writer, data)

    def tell(self, line: bytes) -> None:
        """Send a line; a script that does not read loses it."""
        if not self._unsent and self._writer >= 0:
            with contextlib.suppress(OSError):
                self._write(line)

    def send(self, data: bytes) -> None:
        """Send all of `data`, as the script reads it; nothing to one that has ended."""
        if self._writer < 0:
            return
        try:
            sent = self._write(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # its end of the pipe is closed; most likely it has exited
            self._unsent = data
            return
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._writer, self._writable)

    def _writable(self) -> None:
        try:
            sent = self._write(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_writer(self._writer)
            return
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._loop.remove_writer(self._writer)

    @property
    def unread(self) -> int:
        """How many bytes were sent and not read; 0 where the kernel does not
        tell."""
        if self._writer < 0:
            return 0
        return (_held(self._writer) or 0) + len(self._unsent)

    @property
    def sending(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._unsent)

    def hang_up(self) -> None:
        """Close what the script is sent: it reads the end."""
        if self._group is not None and self.termination is not None:
            self._group.remove()
        if self._writer < 0:
            return
        if self._unsent:
            self._loop.remove_writer(self._writer)
            self._unsent = b""
        os.close(self._writer)
        self._writer = -1

    # ---- its process

    def signal(self, sig: int) -> None:
        """Signal its process group; the leader is not reaped, so the number is its."""
        if self.termination is None:
            spawn.signal_group(self.pid, sig)

    def terminate(self, grace: float, **names: str) -> None:
        """End it: TERM, and KILL after `grace` seconds; the log calls it by `names`."""
        self.signal(TERM)
        self._loop.call_later(grace, self._kill, names)

    def _kill(self, names: Mapping[str, str]) -> None:
        if self.termination is None:
            log.warning(
                "a script ignores TERM; RQ kills its group: %s",
                fields(**names, pid=self.pid),
            )
            self.signal(KILL)

    def signal_left(self, sig: int) -> None:
        """Signal what is left of its group, if anything: else the number is free."""
        if self.has_children():
            spawn.signal_group(self.pid, sig)

    def has_children(self) -> bool:
        """Whether something of its group may live on; cheap, and never a false no."""
        if not spawn.group_lives(self.pid):
            return False
        wait_for_group(self.pid)  # who has ended lives no more
        return spawn.group_lives(self.pid)

    def _exited(self) -> None:
        termination = spawn.reap(self.pid)
        if termination is None:
            return
        self.termination = termination
        if self._group is not None:
            self.oom_kills = self._group.oom_kills
        self._family.ended(self.pid)
        data = self._page()
        left = self._held() if data else 0
        if left:
            self._loop.remove_reader(self._reader)
            closing.close(self._loop, self.pidfd)
        else:
            closing.close(self._loop, self.pidfd, self._reader)
        self._hear_end(data, left)


def give(fds: Iterable[int], run_as: RunAs) -> None:
    """Give descriptors to the user of a script: pipes, which it may open again by their
    names in /dev/fd, and the lock file of its slot, which says so whose it is."""
    if run_as.ids is not None:
        for fd in fds:
            os.fchown(fd, *run_as.ids)


def _words(plan: Plan) -> tuple[list[str], Mapping[str, str]]:
    """Return what is started, and its environment; OSError when the gate could not become
    the script: it would not tell in time."""
    words, env = plan.run_as.start(plan.argv, plan.env)
    if not plan.limits.of_processes:
        return words, env
    program = plan.argv[0]
    os.stat(program)
    if why := program_file.unfit(program):
        raise OSError(errno.ENOEXEC, why, program)
    return [*_GATE, *words], env


def _held(fd: int) -> int | None:
    """Return how many bytes a pipe holds; None where the kernel does not tell."""
    try:
        waiting = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    except OSError:
        return None
    return int.from_bytes(waiting, sys.byteorder)


def drained(fd: int) -> list[bytes]:
    """Return what a pipe holds; a process that keeps it open is not waited for."""
    chunks: list[bytes] = []
    left = _DRAIN
    while left > 0:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            break
        if not data:
            break
        left -= len(data)
        chunks.append(data)
    return chunks


def find_program(argv: list[str], path: str) -> list[str]:
    """Return `argv` with its program found on `path`; FileNotFoundError if it is not."""
    if "/" in argv[0]:
        return argv
    program = shutil.which(argv[0], path=path)
    if program is None:
        text = f"no such program on the PATH of scripts: {argv[0]}"
        raise FileNotFoundError(2, text, argv[0])
    return [program, *argv[1:]]
