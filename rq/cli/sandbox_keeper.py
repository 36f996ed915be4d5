"""The keeper of a sandbox: starts its processes, ends them and removes its directory.

It is a process of its own, which is forked first and ends last. `rq sandbox` holds the
write end of a pipe, the keeper reads the other end: one byte says that the root is made,
the end of the pipe that `rq sandbox` is gone, however it went. So kill -9 of `rq sandbox`,
Ctrl-C and an ordinary end are one path. What the keeper starts is told by the kernel when
the keeper itself dies, and stops, too.

A command may leave processes that are no children of ours (a server that it started and
forgot). They have RQ_SANDBOX in their environment, by which they are found.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rq.cli import mgr, place
from rq.cli.sandbox_root import MARK
from rq.layout import Root
from rq.proc import daemon, processes

_PATIENCE = 20.0  # seconds from TERM to KILL of the supervisor: its queues write
_OWNERS_PATIENCE = 5.0  # for queues whose supervisor was killed
_LEFT_PATIENCE = 2.0  # for what the command left
_LOOK = 0.02
# Started by none: their work is no part of a test, and each costs time.
WITHOUT = ("web", "scandir", "timers", "index", "broker")
_PASSING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Keeper:
    """The end of the line to a keeper, held by `rq sandbox`."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.words: list[
            int
        ] = []  # where the supervisor and the web say they are ready
        alive, self._line = os.pipe()
        pairs = [os.pipe(), os.pipe()]
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._line)
            _be_keeper(root, alive, [theirs for _, theirs in pairs])
        os.close(alive)
        for ours, theirs in pairs:
            os.close(theirs)
            self.words.append(ours)

    def start(self) -> None:
        """Let it start the processes: the root is made."""
        os.write(self._line, b"\n")

    def end(self) -> None:
        """Let it end them and remove the root; wait for that."""
        os.close(self._line)
        os.waitpid(self._pid, 0)
        if self.root.path.exists():  # it was killed itself
            _end(self.root, [])


def _be_keeper(root: Root, alive: int, words: Sequence[int]) -> None:
    """Be the keeper, in the forked process; does not return."""
    try:
        os.setsid()
        for number in _PASSING:  # handlers, which those that it starts do not inherit
            signal.signal(number, lambda _number, _frame: None)
        daemon.title("rq-sandbox")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        _keep(root, alive, words)
    finally:
        os._exit(0)


def _keep(root: Root, alive: int, words: Sequence[int]) -> None:
    started: list[subprocess.Popen[bytes]] = []
    try:
        if os.read(alive, 1):
            started = _start(root, *words)
            for fd in words:
                os.close(fd)
            os.read(alive, 1)
    finally:
        _end(root, started)


def _start(root: Root, supervisor: int, web: int) -> list[subprocess.Popen[bytes]]:
    """Start the supervisor, and beside it the web, which takes as long: two processors
    have them ready in the time of one."""
    without = [word for name in WITHOUT for word in ("--without", name)]
    life, _ = os.pipe()  # its write end closes with us
    return [
        _popen(root, [*mgr.command(root), *without, "--ready-fd", str(supervisor)]),
        _popen(root, [*_web(root), "--ready-fd", str(web), "--life-fd", str(life)]),
    ]


def _web(root: Root) -> list[str]:
    return [sys.executable, "-I", "-m", "rq.web", "--root", str(root.path)]


def _popen(root: Root, words: list[str]) -> subprocess.Popen[bytes]:
    pairs = itertools.pairwise(words)
    fds = [int(word) for flag, word in pairs if flag.endswith("-fd")]
    with open(root.log / "start.log", "ab") as last_words:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=last_words,
            stderr=last_words,
            start_new_session=True,
            pass_fds=fds,
            cwd="/",
            env=mgr.environment(),
            preexec_fn=daemon.die_with_parent,  # noqa: PLW1509 (we have one thread)
        )


# ---- the end


def _end(root: Root, started: Sequence[subprocess.Popen[bytes]]) -> None:
    """End all that the sandbox has started, and remove its root."""
    for process, number in zip(started, (signal.SIGTERM, signal.SIGKILL), strict=False):
        process.send_signal(
            number
        )  # the web's own end takes a second, and keeps nothing
    _end_marked(root)
    deadline = time.monotonic() + _PATIENCE
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.wait()
    _await_owners(root)
    _end_marked(root)
    shutil.rmtree(root.path, ignore_errors=True)


def _await_owners(root: Root) -> None:
    """Wait for queues: without a supervisor they stop by themselves."""
    deadline = time.monotonic() + _OWNERS_PATIENCE
    while time.monotonic() < deadline and any(
        place.answers(root.queue(name)) for name in place.queue_names(root)
    ):
        time.sleep(_LOOK)


def _end_marked(root: Root) -> None:
    """TERM what the command left, KILL what stays."""
    deadline = time.monotonic() + _LEFT_PATIENCE
    number = signal.SIGTERM
    while _signal_marked(root, number) and number is signal.SIGTERM:
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(_LOOK)


def _signal_marked(root: Root, number: signal.Signals) -> int:
    """Signal all that have the mark of a sandbox; return how many."""
    signalled = 0
    for pid, pidfd in _marked(f"{MARK}={root.path}".encode()):
        processes.signal_one(pidfd, pid, number)
        os.close(pidfd)
        signalled += 1
    return signalled


def _marked(mark: bytes) -> Iterator[tuple[int, int]]:
    """Give the processes of our user that have `mark` in their environment."""
    for directory in Path("/proc").glob("[0-9]*"):
        pid = int(directory.name)
        with contextlib.suppress(OSError):
            pidfd = processes.open_pidfd(
                pid
            )  # first: later the number may be another's
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                yield pid, pidfd
            else:
                os.close(pidfd)
