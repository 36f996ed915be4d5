"""The listening sockets of parked queues, held until their processes are there again.

A queue that has nothing to do hands its socket to the supervisor and ends. The socket goes
on listening: those who connect wait in its backlog, and the first of them has the queue
started, which gets the socket with its fork. It is held here until that process is ready,
so that one that dies on the way leaves it for the next.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable

from rq.config import files, parked
from rq.config.parked import End, Listens
from rq.errors import RQError
from rq.layout import Root
from rq.logs import fields
from rq.proc import descriptors, locks
from rq.rpc import client
from rq.supervisor.children import Process

log = logging.getLogger(__name__)
SHARE = 0.75  # of the descriptors that may be open; the others are for what runs


class Listeners:
    """The sockets that are held, by the names of their queues."""

    def __init__(self, root: Root, wake: Callable[[str], None]) -> None:
        """`wake` is told the queue to which a client has connected."""
        self._root = root
        self._wake = wake
        self._held: dict[str, socket.socket] = {}
        self._ends: dict[str, End] = {}  # of their journals
        self._most = int(descriptors.limit() * SHARE)
        self._has_told = False  # that there is no room

    @property
    def has_room(self) -> bool:
        """Whether one more may be held."""
        return len(self._held) < self._most

    def tell_if_full(self) -> None:
        """Say once that no more can be parked, and what to do."""
        if not (self._has_told or self.has_room):
            self._has_told = True
            log.warning(
                "%d queues are parked, and this process may open %d descriptors: one more is "
                "started again at once; raise LimitNOFILE in rq.service, or `ulimit -n`",
                len(self._held),
                descriptors.limit(),
            )

    def hold(self, name: str, sock: socket.socket, end: End) -> None:
        """Hold the socket of a queue that is about to end, as its journal does."""
        self.give_back(name)
        sock.setblocking(False)
        self._held[name], self._ends[name] = sock, end

    def listen_again(self, process: Process, boot: str) -> bool:
        """Listen for a queue that was parked when RQ stopped, if that still says all;
        False: it has to start."""
        queue = self._root.queue(process.name)
        left = parked.as_stopped(self._root, process.name, boot)
        if left is None or not self.has_room:
            return False
        try:
            if (lock := locks.lock(queue.lock)) is None:
                return False
            with os.fdopen(lock):
                sock = client.listen(queue.socket)
                self.hold(process.name, sock, parked.listens_anew(queue, left))
        except (OSError, RQError) as error:
            log.warning("%s", fields(queue=process.name, reason=error))
            self.end(process.name)
            return False
        away = None if left.wakes_at is None else max(0.0, left.wakes_at - time.time())
        process.parked(time.monotonic(), away)
        self.watch(process.name)
        return True

    def watch(self, name: str) -> None:
        """Wake a queue, which has ended, once a client connects."""
        sock = self._held[name]
        loop = asyncio.get_running_loop()

        def connected() -> None:
            loop.remove_reader(sock)
            self._wake(name)

        loop.add_reader(sock, connected)

    def of(self, name: str) -> Listens | None:
        """Return what a queue starts with; its socket is watched no more."""
        if (sock := self._held.get(name)) is None:
            return None
        asyncio.get_running_loop().remove_reader(sock)
        return Listens(fd=sock.fileno(), end=self._ends[name])

    def give_back(self, name: str) -> None:
        """Hold the socket no more: its queue has it, or has bound another."""
        sock = self._held.pop(name, None)
        if sock is not None:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()

    def end(self, name: str) -> None:
        """Listen no more for a queue that is down: who connects is refused."""
        if name in self._held:
            self.give_back(name)
            files.remove_name(self._root.queue(name).socket)

    def close(self) -> None:
        """Let go of all."""
        for name in list(self._held):
            self.end(name)
