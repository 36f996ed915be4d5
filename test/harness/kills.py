"""Queue processes that tests kill: at named points, by hand, and again while they recover.

A `Site` is a root with queues; each `Queue` starts its process when told, and in the end
proves that nothing was lost, doubled or left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import forks
from harness.checkout import CHECKOUT
from harness.forks import Forked
from harness.queues import short
from harness.sockets import old_ask
from harness.starting import READY, environment, start
from harness.waiting import wait_until
from rq.errors import OutcomeUnknown, Unreachable
from rq.layout import Root
from rq.spool import check, folders
from rq.words.states import State

OWNER = (sys.executable, CHECKOUT / "test/harness/owner_process.py")
PLACES = ("prep", "que", "run", "err", "gone", "new")

# Holds a lock on a file of its message for as long as it or a child lives: a second
# attempt that finds the lock taken has met the first one.
SCRIPT = """#!/bin/bash
exec 8>>"$RQ_ROOT/met.$RQ_MSG_ID"
say() { echo "$1 $RQ_MSG_ID $$ $RQ_COUNT" >> "$RQ_ROOT/ran"; }
flock -n 8; [ $? -ne 1 ] || say overlap
say start
hold() { until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done; }
[ -z "$RQ_PARAM1" ] || . "$RQ_ROOT/acts/$RQ_PARAM1"
say end
echo "done fine" >&3
"""

# The beginning of the same for a batch, with a lock for each of its messages.
BATCH = r"""#!/bin/bash
mapfile -t ids < <(sed -n 's/^{"msg_id":"\([^"]*\)".*/\1/p' "$RQ_BATCH_FILE")
say() { echo "$1 $2 $$ 0" >> "$RQ_ROOT/ran"; }
for id in "${ids[@]}"; do
    exec {lock}>>"$RQ_ROOT/met.$id"
    flock -n $lock; [ $? -ne 1 ] || say overlap $id
    say start $id
done
"""


class Site:
    """A root of the test's own."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.root = Root(path)
        self.tag = uuid.uuid4().hex
        self.queues: dict[str, Queue] = {}
        for name in ("config", "queue", "log", "acts"):
            (path / name).mkdir(parents=True)
        known = {
            "env": "test",
            "host": "127.0.0.1",
            "port": "3333",
            "grace": 0.3,
            "min_free_bytes": 0,
            "min_free_inodes": 0,
            **settings,
        }
        self.root.config.write_text(json.dumps(known))

    def queue(self, name: str = "t", script: str = SCRIPT, **config: Any) -> Queue:
        """Make a queue; its process is not started."""
        place = self.root.queue(name)
        place.path.mkdir()
        program = self.root.path / f"{name}.script"
        program.write_text(script)
        program.chmod(0o755)
        settings = {
            "name": name,
            "script": str(program),
            "exec_prefix": "",
            "nice": 0,
            "env_vars": {"TEST_TAG": self.tag},
            **config,
        }
        place.config.write_text(json.dumps(settings))
        self.queues[name] = Queue(self, name)
        return self.queues[name]

    def act(self, name: str, text: str) -> None:
        """Let messages with `param1` = `name` run these lines of bash."""
        (self.root.path / "acts" / name).write_text(text)

    def go(self) -> None:
        """Let the scripts that hold end."""
        (self.root.path / "go").touch()

    def wait_again(self) -> None:
        (self.root.path / "go").unlink()

    def ran(self, word: str, msg_id: str = "") -> list[list[str]]:
        """Return what scripts said: [word, message, pid, count]."""
        with contextlib.suppress(FileNotFoundError):
            text = (self.root.path / "ran").read_text()
            lines = text[: text.rfind("\n") + 1].splitlines()  # no line half written
            found = [line.split() for line in lines]
            return [one for one in found if one[0] == word and msg_id in one[1]]
        return []

    def holders(self) -> list[int]:
        """Return the processes that scripts of this site have left alive."""
        mark = f"TEST_TAG={self.tag}".encode()
        return [pid for pid in _pids() if mark in _environ(pid) or self._open(pid)]

    def _open(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            links = (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in _fds(pid))
            return any(one.startswith(f"{self.root.path}/met.") for one in links)
        return False

    def close(self) -> None:
        for one in self.queues.values():
            one.kill()
        for pid in self.holders():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def site_at(path: Path, **settings: Any) -> Iterator[Site]:
    site = Site(path, **settings)
    try:
        yield site
    finally:
        site.close()


class Queue:
    """A queue, and what its clients were promised."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.dir = site.root.queue(name)
        self.promised: list[str] = []
        self.process: subprocess.Popen[bytes] | Forked | None = None

    # ---- its process

    def start(self, crash_at: str = "", **env: str) -> Queue:
        """Start the process; return when it serves, or has died at `crash_at`."""
        changes = environment({"RQ_CRASH_AT": crash_at, **env})
        asked = (str(self.site.root.path), self.name)
        with (self.site.root.log / f"{self.name}.stderr").open("ab") as stderr:
            if forks.suffice(env):
                words, fd = (*asked, ""), stderr.fileno()
                self.process, self.said = forks.start("queue", words, changes, fd)
            else:
                words = (*OWNER, *asked, READY)
                self.process, self.said = start(words, changes, stderr=stderr)
        if not crash_at:
            assert self.said == "\n", self.said or self.log()
        return self

    def log(self) -> str:
        texts = [path.read_text() for path in self.site.root.log.glob(f"*{self.name}*")]
        return "".join(texts)[-8000:]

    def kill(self) -> None:
        """kill -9, as a machine out of memory does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def died(self) -> bool:
        """Wait for its end; return whether it was killed."""
        assert self.process is not None
        try:
            return self.process.wait(20) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it lives on:\n{self.log()}") from None

    def restart(self) -> Queue:
        self.kill()
        return self.start()

    def arm(self, point: str) -> None:
        """Let the process die when it next passes `point`."""
        assert self.process is not None
        with contextlib.suppress(OutcomeUnknown, Unreachable):  # it may be dying
            self.ask("ping")  # its answer waits for the sync of all that was before
        asked = self.site.root.path / f"{self.name}.crash_at"
        asked.write_text(point)
        self.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: not asked.exists() or self.process.poll() is not None)
        asked.unlink(missing_ok=True)

    def crash(self, point: str, act: Callable[[], Any]) -> Any:
        """Die at `point` while `act` is asked; return its answer, if there was one."""
        self.arm(point)
        try:
            answer = act()
        except (OutcomeUnknown, Unreachable):
            answer = None
        assert self.died()
        return answer

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    # ---- asking

    def ask(self, command: str, arg: object = b"", timeout: float = 20.0) -> Any:
        return old_ask(self.dir.socket, command, arg, timeout=timeout)

    def ok(self, command: str, arg: object = b"") -> Any:
        reply = self.ask(command, arg)
        assert reply[0] == "ok", reply
        return reply[1]

    def submit(self, act: str = "", **fields: Any) -> str:
        """Send a message; its id, once it was promised."""
        asked = {"dest": self.name, "param1": act, **fields}
        msg_id = short(self.ok("create_message", asked))
        self.promised.append(msg_id)
        return msg_id

    def prepare(self, **fields: Any) -> str:
        return short(self.ok("prep_message", {"dest": self.name, **fields}))

    def show(self, msg_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.ok("get_message", {"msg_id": msg_id})
        return shown

    def state(self, msg_id: str) -> str:
        return str(self.ok("get_message_state", {"msg_id": msg_id}))

    def until(self, msg_id: str, state: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until a message is in a state; return all that is known of it."""
        wait_until(lambda: self.state(msg_id) == state, seconds)
        return self.show(msg_id)

    def until_started(self, msg_id: str, times: int = 1) -> None:
        wait_until(lambda: len(self.site.ran("start", msg_id)) >= times)

    def pause(self) -> None:
        self.site.root.pause(self.name).touch()
        self.ok_wake()

    def resume(self) -> None:
        self.site.root.pause(self.name).unlink()
        self.ok_wake()

    def ok_wake(self) -> None:
        assert self.ask("wake") == ["ok"]

    def busy(self) -> float:
        """Return the seconds of CPU that the process has used."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    # ---- proving

    def places(self, msg_id: str) -> list[str]:
        """Return everywhere that the folder of a message lies."""
        found = [
            name
            for name in PLACES
            if (self.dir.path / name / msg_id).exists()
            or (self.dir.path / name / f".{msg_id}").exists()
        ]
        for state in (State.DONE, State.RELAYED):
            if self.dir.message(state, msg_id).exists():
                found.append(str(state))
        return found

    def ids(self) -> list[str]:
        """Return all messages there are, as their folders lie when all are made; one that
        moves meanwhile may lie in two of the directories that are listed."""
        if self.process is not None and self.process.poll() is None:
            self.ask("check")
        found = {
            msg_id
            for state in State
            if state not in (State.NOWHERE, State.GONE)
            for msg_id in folders.list_state(self.dir, state)
        }
        return sorted(found)

    def prove(self, gone: tuple[str, ...] = ()) -> None:
        """Stop cleanly; all that was promised lies in one place, and all agrees."""
        live = self.ok("check")["problems"]
        assert live == [], live
        assert self.stop() == 0, self.log()
        still = check.check(self.dir)
        assert still == [], still
        for msg_id in self.promised:
            assert len(self.places(msg_id)) == (msg_id not in gone), msg_id
        assert self.site.ran("overlap") == []

    def events(self, msg_id: str = "") -> list[dict[str, Any]]:
        """Return the lines of its journal, sealed and open, as they were written."""
        found: list[dict[str, Any]] = []
        sealed = sorted(self.dir.history.glob("*/*.jsonl"))
        for path in [*sealed, *sorted(self.dir.journal.glob("0*"))]:
            for line in path.read_bytes().rstrip(b"\0").splitlines():
                found.append(json.loads(line))
        return [one for one in found if msg_id in one.get("msg", "")]

    def segment(self) -> Path:
        """Return the segment that is being written."""
        return max(self.dir.journal.glob("0*"))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _fds(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/fd")
