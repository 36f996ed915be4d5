"""The line from the process of a queue to the supervisor that has started it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat

from rq.config import parked
from rq.config.parked import Listens


class Parent:
    """Hears that the queue serves, and takes its listening socket when it is parked."""

    def __init__(self, fd: int | None) -> None:
        """`fd`: where it is to be told; a pipe is told once. None: no process waits."""
        self._fd = fd
        self._kept: Listens | None = None

    @property
    def takes(self) -> bool:
        """Whether it can take a socket."""
        return self._fd is not None and stat.S_ISSOCK(os.fstat(self._fd).st_mode)

    @property
    def lives(self) -> bool:
        """Whether it is there to take a socket: a supervisor that has adopted the queue
        has no such line to it."""
        if self._fd is None:
            return False
        line = select.poll()
        line.register(self._fd, 0)  # what ends it is told unasked
        return not line.poll(0)

    def say(self, text: str) -> None:
        """Tell how the start went."""
        if self._fd is None:
            return
        with contextlib.suppress(OSError):
            os.write(self._fd, text.encode())
        if not self.takes:
            os.close(self._fd)
            self._fd = None

    def hand_over(self, listener: socket.socket, left: parked.Parked) -> None:
        """Give it the listening socket of a queue that is `left` so. OSError: it is gone, and
        with what `take_back` returns the queue goes on."""
        assert self._fd is not None
        try:
            with socket.socket(fileno=os.dup(self._fd)) as line:
                parked.hand_over(line, listener, left)
        except OSError:
            # Those who have connected meanwhile wait in it: they must be answered.
            self._kept = Listens(fd=os.dup(listener.fileno()), end=left.end)
            raise

    def take_back(self) -> Listens | None:
        """Return, once, what the parent did not take."""
        kept, self._kept = self._kept, None
        return kept
