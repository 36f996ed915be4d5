"""Messages that wait for those of queues that are parked, which their folders answer for.

What waits keeps its own queue awake, so those that wait for nothing have queues of their
own here. Supervisor and queues are real: it holds the sockets of what is parked.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.after_model import NAMES, SCRIPT, Node
from harness.after_world import World
from harness.checkout import CHECKOUT
from harness.supervisor import Daemon, daemon_on
from harness.waiting import wait_until
from rq.errors import RQError
from rq.layout import QueueDir
from rq.proc import locks
from rq.spool import check

WAITING, *AWAITED = NAMES
DEEDS = 4  # until queues are to be parked again
# A queue is asked more seldom than it is parked, else its askers kept it awake, and is
# parked as soon again however often it is woken.
QUICK = """
from rq.queues import parking
from rq.queues.schedule import rounds
parking.LONGEST = 1.0
rounds._LONGEST = 3.0
"""


class Child:
    """A queue that a supervisor minds."""

    alive = True  # as far as who asks need know: it is started for him

    def __init__(self, daemon: Daemon, name: str) -> None:
        self._daemon, self.name = daemon, name

    @property
    def dir(self) -> QueueDir:
        return self._daemon.root.queue(self.name)

    @property
    def is_parked(self) -> bool:
        return bool(self._daemon.child(self.name)["state"] == "PARKED")

    def ask(self, command: str, arg: object) -> Any:
        return self._daemon.ask_queue(self.name, command, arg)

    def kill(self) -> bool:
        """kill -9, unless it has no process."""
        pid = self._daemon.child(self.name)["pid"]
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)
        return bool(pid)


class Parked(World):
    """Queues that are parked when they have nothing to do, and woken at random."""

    looked_at_last = tuple(AWAITED)

    def __init__(self, daemon: Daemon, chance: random.Random) -> None:
        self.root, self.chance, self.daemon = daemon.root.path, chance, daemon
        self.kills = self.harms = 0
        self.harmed: tuple[str, ...] = NAMES  # once the last is parked, only the others
        self.seized: int | None = None  # the lock of the queue that waits
        self.deeds_left = DEEDS
        self.children = {name: Child(daemon, name) for name in NAMES}
        self.queues = self.children  # type: ignore[assignment]

    @classmethod
    @contextlib.contextmanager
    def on(cls, root: Path, chance: random.Random) -> Iterator[World]:
        with daemon_on(root, forked=False) as daemon:
            place = root / "quick"
            place.mkdir()
            (place / "sitecustomize.py").write_text(QUICK)
            daemon.env["PYTHONPATH"] = os.pathsep.join([str(place), str(CHECKOUT)])
            daemon.script.write_text(SCRIPT)
            daemon.start()
            for name in NAMES:
                daemon.create(name, park="1s", num_workers=2, exec_prefix="")
            world = cls(daemon, chance)
            yield world
            for name in NAMES:
                assert world.ask(name, "check", b"") == {"problems": []}
            assert daemon.stop() == 0
            for name in NAMES:
                assert check.check(daemon.root.queue(name)) == []

    def place(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.queue = WAITING if node.after else self.chance.choice(AWAITED)

    def begin(self) -> None:
        """Wait until one is parked that is waited for. What asks starts then, and no one
        else looks at that one: its folders tell all."""
        wait_until(lambda: self.children[AWAITED[-1]].is_parked, 60)
        self.harms += 1
        self.deeds_left, self.harmed = DEEDS, NAMES[:-1]
        if self.seized is not None:
            os.close(self.seized)
            self.seized = None
        self.kill(self.children[WAITING])

    def deafen(self) -> None:
        """Let the queue that waits hear nothing until others are parked: it is killed, and
        cannot start."""

        def is_away() -> bool:
            self.kills += self.children[WAITING].kill()
            self.seized = locks.lock(self.daemon.root.queue(WAITING).lock)
            return self.seized is not None

        wait_until(is_away, 60)

    def kill(self, child: Child) -> None:
        """Kill one; it goes on at once, however often it was killed."""
        self.kills += child.kill()
        self.daemon.ask("restart_queue", child.name)

    def harm(self) -> None:
        """Kill one, restart one, or wake one; seldom, so that some stay parked."""
        if self.deeds_left <= 0 or self.chance.random() < 0.9:
            return
        self.deeds_left -= 1
        child = self.children[self.chance.choice(self.harmed)]
        deed = self.chance.random()
        if deed < 0.4:
            self.kill(child)
        elif deed < 0.5:
            self.daemon.ask("restart_queue", child.name)
        else:
            with contextlib.suppress(RQError, OSError):
                child.ask("status", b"")

    def heal(self) -> None:
        """The supervisor does."""

    def stop(self) -> None:
        assert self.daemon.stop() == 0

    def start(self) -> None:
        self.daemon.start()
