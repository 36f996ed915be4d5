"""Queues of a test's own: a root in its directory, real processes, nothing left behind.

Every queue is checked at its end: alive, journal, folders and counters agree; stopped,
its folders alone tell everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from harness import forks
from harness.checkout import CHECKOUT
from harness.forks import Forked
from harness.sockets import old_ask, old_line
from harness.starting import READY, environment, start
from harness.waiting import wait_until
from rq.layout import Root
from rq.proc import processes
from rq.spool import check
from rq.words.states import FINAL

SCRIPTS = CHECKOUT / "test/scripts"
MAIN = """
import sys
from harness.owner_process import main
sys.exit(main(*sys.argv[1:]))
"""
SETTINGS = {
    "env": "development",
    "host": "127.0.0.1",
    "port": "3333",
    "grace": 1,
    "min_free_bytes": 0,
    "min_free_inodes": 0,
}


def ask_at_once(socket: Path, pid: int, *requests: tuple[str, object]) -> list[Any]:
    """Ask on a connection each, all of which process `pid` reads in one turn; return the
    replies."""
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(old_line(socket)) for _ in requests]
        for line in lines:
            line.ask("ping")  # it was accepted
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: processes.state_letter(pid) == "T")
        for line, (command, arg) in zip(lines, requests, strict=True):
            line.send(command, arg)
        os.kill(pid, signal.SIGCONT)
        return [line.receive() for line in lines]


class RunningQueue:
    """A queue and the process that owns it."""

    # Python that the process runs first.
    prelude = ""

    def __init__(self, root: Path, name: str, script: Path | str, **settings: Any):
        self.root = Root(root)
        self.name = name
        self.dir = self.root.queue(name)
        self.env: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.script = self.script_file(script)
        for directory in (self.root.config_dir, self.root.log, self.dir.path):
            directory.mkdir(parents=True, exist_ok=True)
        if not self.root.config.exists():
            self.root.config.write_text(json.dumps(SETTINGS))
        self.settings = {"name": name, "script": str(self.script), "exec_prefix": ""}
        # Scripts that are as nice as they are by default starve on a busy machine.
        self.configure(**{"nice": 0, **settings})

    def script_file(self, script: Path | str) -> Path:
        """Return a file of test/scripts by its name, or one with the text given."""
        if isinstance(script, Path):
            return script
        if "\n" not in script:
            return SCRIPTS / script
        path = self.root.path / f"{self.name}.script"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
        return path

    def configure(self, **changes: Any) -> None:
        """Write the queue's config; a process that runs sees it at its next look."""
        self.settings.update(changes)
        tmp = self.dir.path / "config.json.new"
        tmp.write_text(json.dumps(self.settings))
        tmp.rename(self.dir.config)

    # ---- the process

    def start(
        self, command: tuple[str, ...] = (), user: str = "", **popen: Any
    ) -> None:
        """Start the owner, perhaps as another user id, and wait until it serves;
        `command` goes before it. It is forked, where nothing asks for a Python of its
        own."""
        env = environment(self.env)
        if command or popen or self.prelude or not forks.suffice(self.env):
            words = [sys.executable, "-c", f"{self.prelude}\n{MAIN}"]
            words += [self.root.path, self.name, READY, user]
            self.process, said = start([*command, *words], env, **popen)
        else:
            asked = (str(self.root.path), self.name, user)
            self.process, said = forks.start("queue", asked, env)
        assert said == "\n", f"{said!r}; {self.log()}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        """Stop it gracefully; return its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def crash(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def crash_at(self, point: str) -> None:
        """Let it die when it next passes a named point."""
        (self.root.path / f"{self.name}.crash_at").write_text(point)
        os.kill(self.pid, signal.SIGUSR1)

    def restart(self) -> None:
        assert self.stop() == 0, self.log()
        self.start()

    def log(self) -> str:
        """Return what the process has logged."""
        logs = self.root.log.glob(f"queue-{self.name}.log")
        return "".join(one.read_text() for one in logs)

    def close(self) -> None:
        """End it and prove that it left everything in order."""
        with contextlib.suppress(FileNotFoundError):
            self.root.down(self.name).unlink()
        if self.alive:
            self.check()
            assert self.stop() == 0, self.log()
            problems = check.check(self.dir)
        else:
            problems = check.check(self.dir, fix=True)
        assert problems == [], self.log()

    def kill(self) -> None:
        if self.alive:
            self.crash()

    # ---- asking it

    def ask(self, command: str, arg: object = b"", fds: tuple[int, ...] = ()) -> Any:
        return old_ask(self.dir.socket, command, arg, fds, timeout=60)

    def ok(self, command: str, arg: object = b"", fds: tuple[int, ...] = ()) -> Any:
        """Ask for what must succeed; return the second part of the reply."""
        word, answer = self.ask(command, arg, fds)
        told = self.log() if "the log" in str(answer) else ""
        assert word == "ok", f"{answer}\n{told}"
        return answer

    def refused(self, command: str, arg: object = b"") -> str:
        """Ask for what must be refused; return the reason."""
        word, answer = self.ask(command, arg)
        assert word == "fail", answer
        return str(answer)

    def check(self) -> None:
        assert self.ok("check") == {"problems": []}, self.log()

    def send(self, **fields: Any) -> str:
        """Send a message; return its short id."""
        return short(self.ok("create_message", {"dest": self.name, **fields}))

    def get(self, msg_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("get_message", {"msg_id": msg_id})
        return found

    def state(self, msg_id: str) -> str:
        return str(self.ok("get_message_state", {"msg_id": msg_id}))

    def until(self, msg_id: str, *states: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for a message to be in one of `states`; return all of it."""
        wait_until(lambda: self.state(msg_id) in states, seconds)
        return self.get(msg_id)

    def ended(self, msg_id: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for a message to end; return all of it."""
        return self.until(msg_id, *map(str, FINAL), seconds=seconds)

    def run(self, seconds: float = 30.0, **fields: Any) -> dict[str, Any]:
        """Send a message and wait for its end."""
        return self.ended(self.send(**fields), seconds)

    def folder(self, msg_id: str) -> Path:
        """Return where its folder lies, once everything has been written."""
        self.ok("check")
        return self.root.path / self.get(msg_id)["path"]

    def output(self, msg_id: str) -> str:
        """Return its stdio.log."""
        return (self.folder(msg_id) / "job/stdio.log").read_text(errors="replace")


def short(full_id: str) -> str:
    """Return the short id at the end of a full one."""
    return full_id.rpartition("/")[2]


Kept = TypeVar("Kept", bound=RunningQueue)


@contextlib.contextmanager
def running_queue(
    root: Path, script: Path | str = "obey", name: str = "t", **settings: Any
) -> Iterator[RunningQueue]:
    """Give a queue whose process runs; `script` is a file of test/scripts or a text.

    At its end it is checked and stopped, and must be in order.
    """
    with kept(RunningQueue(root, name, script, **settings)) as queue:
        yield queue


@contextlib.contextmanager
def kept(queue: Kept) -> Iterator[Kept]:
    """Let a queue run; at the end it is checked and stopped, and must be in order."""
    try:
        queue.start()
        yield queue
        queue.close()
    finally:
        queue.kill()
