"""Processes of RQ that are forked from one that has imported all they need, as the
supervisor's queues are: such a start takes a tenth of the time of a new Python."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from harness.starting import environment
from rq.supervisor import forks as answers

_LOOK = 0.05  # seconds between looks at what another thread may have read
# Programs that are forked from one process: they need the same.
_TOGETHER = dict.fromkeys(("supervisor", "web"), ("supervisor", "web"))


def suffice(changes: Mapping[str, str]) -> bool:
    """Return whether a forked process heeds these changes of its environment: what is for
    the loader, for Python or for C libraries needs a new one."""
    return all(name.startswith(("RQ_", "TEST_")) for name in changes)


def start(
    program: str, words: Sequence[str], env: Mapping[str, str], stderr: int = 2
) -> tuple[Forked, str]:
    """Start a program of `fork_server`; return its process and what it says of its
    readiness, as `starting.start` does."""
    asked = {"program": program, "words": words, "environment": dict(env)}
    ready, theirs = os.pipe()
    forks = _forks(*_TOGETHER.get(program, (program,)))
    process = forks.fork(asked, theirs, stderr)
    os.close(theirs)
    said = os.read(ready, 4096)
    os.close(ready)
    return process, said.decode(errors="replace")


def start_tool(
    words: Sequence[str], env: Mapping[str, str], cwd: str, files: Sequence[int]
) -> Forked:
    """Start a tool of RQ, as `python -m` with these words does, in a directory and with
    these as its standard files."""
    return _forks("tool").run(words, env, cwd, dict(enumerate(files)))


class Forked:
    """A forked process; what subprocess.Popen can do, as far as tests need it."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks = forks
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self._forks.read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self._forks.look()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its end is not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# A process that is forked inherits what malloc has learnt, and would keep large blocks that
# it frees; with a threshold that is set, malloc learns nothing. For brokers, whose memory is
# measured, and no others: each large block then costs its pages again.
MALLOC = {"broker": {"MALLOC_MMAP_THRESHOLD_": "131072"}}


class Forks:
    """The line to a fork server of this process's own."""

    def __init__(self, line: socket.socket) -> None:
        self._lock = threading.RLock()
        self._processes: dict[int, Forked] = {}
        self._text = b""
        self._line = line
        assert isinstance(self._answer(), answers.Ready)

    def run(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        files: Mapping[int, int],
    ) -> Forked:
        """Do as `python -m` with these words does, in a directory; `files` are its
        descriptors, the standard ones among them, and which of ours each is."""
        asked = {"program": "tool", "words": [cwd, *words], "environment": dict(env)}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = self.fork(asked, theirs.fileno(), files[2])
            numbers = json.dumps([*files]).encode()
            socket.send_fds(ours, [numbers], [*files.values()])
        return process

    def fork(self, asked: Mapping[str, object], ready: int, stderr: int) -> Forked:
        """Let a process be forked; it says on `ready` that it serves."""
        line = json.dumps({"name": json.dumps(asked)}).encode() + b"\n"
        with self._lock:
            socket.send_fds(self._line, [line], [ready, stderr])
            while True:
                answer = self._answer()
                if isinstance(answer, answers.Forked):
                    assert answer.pid is not None, answer.error
                    process = self._processes[answer.pid] = Forked(self, answer.pid)
                    return process
                self._take(answer)

    def read(self) -> None:
        """Take in which processes have ended."""
        with self._lock:
            while b"\n" in self._text or self._is_readable(0):
                self._take(self._answer())

    def look(self) -> None:
        """Wait a moment for news."""
        self._is_readable(_LOOK)

    def _is_readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _answer(self) -> answers.Answer:
        """Return the next answer of the server, once there is one."""
        while b"\n" not in self._text:
            data = self._line.recv(4096)
            assert data, "the fork server has ended"
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        return answers.parse(line)

    def _take(self, answer: answers.Answer) -> None:
        if isinstance(answer, answers.Exited):
            self._processes.pop(answer.pid).returncode = answer.status


@functools.cache
def _forks(*programs: str) -> Forks:
    line, theirs = socket.socketpair()
    words = [sys.executable, "-m", "harness.fork_server", *programs]
    env = environment(MALLOC.get(programs[0], {}))
    with theirs:
        server = subprocess.Popen(words, env=env, stdin=theirs)

    def close() -> None:
        line.close()
        server.wait(60)

    atexit.register(close)
    return Forks(line)
