"""A whole queue in the process of its test, which lets its loop turn when it asks: what a
request does is seen in milliseconds."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.queues import SETTINGS
from rq.layout import Root
from rq.proc import closing
from rq.queues.delivery import owed
from rq.queues.owner import uniqueness
from rq.queues.owner.owner import Owner
from rq.queues.owner.settings import Settings
from rq.queues.parent import Parent
from rq.queues.process import Process
from rq.queues.runner.runner import Runner
from rq.rpc import client, wire
from rq.spool import open_spool

PATIENCE = 20.0


class Line:
    """A connection to it."""

    def __init__(self, queue: InnerQueue) -> None:
        self._queue = queue
        here, self.there = socket.socketpair()
        self.there.setblocking(False)
        queue.process.server._welcome(here)
        self._frames = wire.Frames()
        self._replies: list[Any] = []

    def send(self, word: str, arg: object = None, *fds: int) -> None:
        text = b"" if arg is None else json.dumps(arg).encode()
        data = wire.request(word, text)
        if fds:
            socket.send_fds(self.there, [data], fds)
        else:
            self.there.sendall(data)

    def receive(self) -> Any:
        """Return the next reply."""
        while not self._replies:
            data = self._queue.turned(
                self._queue.loop.sock_recv(self.there, 1024 * 1024)
            )
            assert data, "it has hung up"
            self._replies += map(json.loads, self._frames.feed(data))
        return self._replies.pop(0)

    def ask(self, word: str, arg: object = None, *fds: int) -> Any:
        self.send(word, arg, *fds)
        return self.receive()

    def close(self) -> None:
        self.there.close()


class InnerQueue:
    """One queue at work."""

    def __init__(
        self,
        path: Path,
        name: str = "q",
        beside: InnerQueue | None = None,
        **settings: Any,
    ) -> None:
        """`beside`: another one, on whose loop it is."""
        self._is_beside = beside is not None
        self.loop = closing.Loop() if beside is None else beside.loop
        self.root = Root(path)
        self.dir = self.root.queue(name)
        for folder in (self.root.config_dir, self.root.log, self.dir.path):
            folder.mkdir(parents=True, exist_ok=True)
        self.root.config.write_text(json.dumps(SETTINGS))
        script = path / f"script-{name}"
        script.write_text(f"#!/bin/sh\n{settings.pop('text', '')}\n")
        script.chmod(0o755)
        self.config = {"name": name, "script": str(script), "num_workers": 0}
        self.config |= {"exec_prefix": "", **settings}
        self.dir.config.write_text(json.dumps(self.config))
        self._threads = ThreadPoolExecutor(2)
        self._lines: list[Line] = []
        self.open()

    def open(self) -> None:
        """Open it, as its process does."""
        settings = Settings(self.root, self.dir.name)
        opened = open_spool(
            self.dir,
            threads=self._threads,
            grace=0.1,
            owes=functools.partial(owed.at_end, settings),
            retry=lambda: settings.queue.retry,
            keys=uniqueness.keys(settings.queue),
        )
        self.owner = Owner(opened, settings, self.loop, self._threads)
        self.spool = self.owner.spool
        self._running: asyncio.Task[int] = self.turned(self._begin())
        self._line = self.line()

    async def _begin(self) -> asyncio.Task[int]:
        sock = client.listen(self.dir.socket)
        self.process = Process(self.owner, Runner(self.owner), sock, Parent(None))
        self.process.housekeeping.tick()
        return self.loop.create_task(self.process.loop.run())

    def line(self) -> Line:
        line = Line(self)
        self._lines.append(line)
        return line

    def turned(self, coming: Any) -> Any:
        """Let the loop turn until something has come."""
        return self.loop.run_until_complete(asyncio.wait_for(coming, PATIENCE))

    def until(self, is_so: Callable[[], object]) -> None:
        """Let the loop turn until something is so."""

        async def turn() -> None:
            while not is_so():
                await asyncio.sleep(0.002)

        self.turned(turn())

    def ask(self, word: str, arg: object = None, *fds: int) -> Any:
        """Ask, and return the reply."""
        return self._line.ask(word, arg, *fds)

    def ok(self, word: str, arg: object = None, *fds: int) -> Any:
        """Return what stands in a reply that is no error."""
        kind, *value = self.ask(word, arg, *fds)
        assert kind == "ok", (word, value)
        return value[0] if value else None

    def failed(self, word: str, arg: object = None) -> str:
        """Return the sentence of a request that is refused."""
        kind, sentence, *_ = self.ask(word, arg)
        assert kind in ("fail", "error"), (kind, sentence)
        return str(sentence)

    def stop(self) -> int:
        """Stop it cleanly; return its exit status."""
        self.process.stop()
        status: int = self.turned(self._running)
        self._close()
        return status

    def _close(self) -> None:
        for line in self._lines:
            line.close()
        self.owner.pools.close()
        os.close(self.owner.opened.lock)
        self.spool.close()

    def end(self) -> None:
        if not self._running.done():
            self.stop()
        self._threads.shutdown()
        if not self._is_beside:
            self.loop.close()


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[Callable[..., InnerQueue]]:
    """Give a function that opens a queue with some settings."""
    opened: list[InnerQueue] = []

    def opens(name: str = "q", **settings: Any) -> InnerQueue:
        opened.append(InnerQueue(tmp_path, name, **settings))
        return opened[-1]

    yield opens
    for queue in reversed(opened):
        queue.end()
