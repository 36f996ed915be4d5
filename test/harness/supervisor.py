"""Running supervisors for tests: own roots, real processes, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import forks
from harness.forks import Forked
from harness.sockets import old_ask
from harness.starting import READY, environment, script_environment, start
from harness.waiting import wait_until
from rq.config import files
from rq.layout import Root
from rq.rpc import wire
from rq.timers.state import read_state

SCRIPT = "#!/bin/sh\necho done ok >&3\n"


class Daemon:
    """A root and the supervisor that runs on it."""

    def __init__(self, path: Path, *, forked: bool = True) -> None:
        """`forked`: no test asks how it starts its programs, or what they take of memory."""
        self.root = Root(path)
        self.forked = forked
        self.tag = uuid.uuid4().hex
        self.env: dict[str, str] = {}
        self.before: list[str] = []  # words before the supervisor's command
        self.process: subprocess.Popen[bytes] | Forked | None = None
        files.make_root(self.root)
        settings = {
            "env": "test",
            "host": "127.0.0.1",
            "port": 3333,
            "grace": 1,
            "web": False,
            "index": False,
            "worker_env": script_environment(),
        }
        files.write_state(self.root.config, settings)
        self.script = path / "script"
        self.script.write_text(SCRIPT)
        self.script.chmod(0o755)

    # ---- the supervisor

    def command(self, module: str, *args: str) -> dict[str, Any]:
        env = environment({"RQ_TEST_TAG": self.tag, **self.env})
        return {
            "args": [
                *self.before,
                sys.executable,
                "-m",
                module,
                "--root",
                str(self.root.path),
                *args,
            ],
            "env": env,
        }

    def start(self, **kwargs: Any) -> None:
        """Start it; it and its children are forked, where nothing asks for a Python of
        its own."""
        told = self.command("rq.supervisor", "--ready-fd", READY)
        if self.forked and not (kwargs or self.before) and forks.suffice(self.env):
            words = ("--root", str(self.root.path))
            self.process, said = forks.start("supervisor", words, told["env"])
        else:
            self.process, said = start(**told, **kwargs)
        assert said == "\n", said

    def stop(self) -> int:
        assert self.process
        self.process.terminate()
        return self.process.wait(60)

    def crash(self) -> None:
        """kill -9 of the supervisor alone."""
        assert self.process
        self.process.kill()
        self.process.wait(60)

    def ask(self, command: str, arg: object = b"") -> Any:
        return old_ask(self.root.supervisor_socket, command, arg, timeout=60)

    def ask_queue(self, name: str, command: str, arg: object = b"") -> Any:
        return old_ask(self.root.queue(name).socket, command, arg, timeout=60)

    def create(self, name: str, **settings: Any) -> None:
        self.until_up("forks")  # else its first start may last longer than is waited
        # Scripts that are as nice as they are by default starve on a busy machine.
        asked = {"name": name, "script": str(self.script), "nice": 0, **settings}
        reply = self.ask("create_queue", asked)
        assert reply == ["success", "queue created - awesome"]

    # ---- its children

    def children(self) -> list[dict[str, Any]]:
        return list(self.ask("status")["children"])

    def child(self, name: str) -> dict[str, Any]:
        return next(one for one in self.children() if one["name"] == name)

    def is_up(self, name: str) -> bool:
        return bool(self.child(name)["state"] == "UP")

    def until_up(self, name: str, seconds: float = 60.0) -> dict[str, Any]:
        wait_until(lambda: name in [one["name"] for one in self.children()], seconds)
        wait_until(lambda: self.is_up(name), seconds)
        return self.child(name)

    def kill(self, name: str) -> int:
        """kill -9 of a child; return the pid it had."""
        pid = self.until_up(name)["pid"]
        os.kill(pid, signal.SIGKILL)
        return int(pid)

    def processes(self) -> list[int]:
        """Return every process that this daemon started and that still is. The kernel shows
        no environment of those that were forked: their errors go to a log of the root."""
        mark, logs = f"RQ_TEST_TAG={self.tag}".encode(), os.path.realpath(self.root.log)
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_marked = mark in (place / "environ").read_bytes().split(b"\0")
                if is_marked or os.readlink(place / "fd/2").startswith(f"{logs}/"):
                    found.append(int(place.name))
        return found

    def close(self) -> None:
        """End all that was started, by the tag in its environment."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process:
            self.process.wait(60)

    # ---- what tests leave to each other

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def clear(self) -> None:
        """Leave the next test no link, timer, queue, error, trash or log of the last."""
        root = self.root
        for path in {*root.scandir.iterdir(), *root.timers.iterdir()}:
            if path != root.timers_socket:
                _remove(path)
        for name in self.ask("queues"):
            self.ask("delete_queue", name)
        wait_until(self.is_clear, 60)
        flags = [*root.config_dir.glob("*.down"), *root.config_dir.glob("*.pause")]
        left = [*root.queues.iterdir(), *root.trash.iterdir(), *flags]
        for path in (root.path / "definitions", *root.log.glob("queue-*"), *left):
            _remove(path)

    def is_clear(self) -> bool:
        status = self.ask("status")
        scandir, timers = status["scandir"], status["timers"]
        errors = [*scandir.get("errors", ()), *timers.get("errors", ())]
        return not (self.ask("queues") or errors or read_state(self.root))

    # ---- definitions and timers

    def define(self, name: str, settings: object = None) -> Path:
        """Make a definition directory; return it."""
        directory = self.root.path / "definitions" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run").write_text(SCRIPT)
        (directory / "run").chmod(0o755)
        if settings is not None:
            (directory / "config.json").write_text(json.dumps(settings))
        return directory

    def link(self, name: str, directory: Path) -> None:
        (self.root.scandir / name).symlink_to(directory)

    def messages(self, name: str) -> int:
        """Return how many messages the queue has had, in all states but prep."""
        counts = self.ask_queue(name, "num_messages")
        return sum(n for state, n in counts.items() if state != "prep")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def daemon_on(path: Path, *, forked: bool = True) -> Iterator[Daemon]:
    daemon = Daemon(path, forked=forked)
    try:
        yield daemon
    finally:
        daemon.close()


@contextlib.contextmanager
def lent(daemon: Daemon) -> Iterator[Daemon]:
    """Lend a test a daemon that runs and has nothing of the tests before it."""
    if not daemon.runs:
        daemon.start()
    daemon.until_up("scandir")
    daemon.until_up("timers")
    yield daemon
    if daemon.runs:
        daemon.clear()


# ---- bad clients


def connect(path: Path) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(20)
    line.connect(str(path))
    return line


def annoy(path: Path, magic: bytes = wire.MAGIC) -> list[socket.socket]:
    """Send a socket what no client should; return the clients that stay silent."""
    word = magic.strip()
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 4096,
        word + b" 99999999 " + b"x" * 100_000,
        word + b" abcdefgh ping",
        wire.frame(b"", magic),
        wire.frame(b"\xff\xfe \xff", magic),
        wire.frame(b"[" * 100_000, magic),
        wire.frame(b"no_such_command {}", magic),
        wire.frame(b"restart_queue", magic),
        wire.frame(b"create_queue [1]", magic),
        wire.frame(b'create_queue {"name": {}, "script": []}', magic),
        wire.frame(b"delete_queue ../../etc", magic),
        wire.frame(b'["get_timers"]', magic),
        wire.frame(b'["no_such", null]', magic),
        wire.frame(b"{}", magic),
    ):
        with connect(path) as line, contextlib.suppress(OSError):
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            line.recv(4096)
    silent = [connect(path) for _ in range(5)]
    silent[0].sendall(magic + b"0000")
    silent[1].sendall(magic + b"00001000 ping")
    return silent
