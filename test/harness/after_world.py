"""Queues whose messages wait for each other, and what harms them while they do.

A harm is a kind of world, a row of `HARMS`: owners that are killed at named points, and
beside that hints that are all lost, a clock that jumps, a queue that is down for long.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from harness.after_model import (
    DELETED,
    LOST,
    NAMES,
    NOT_RUN,
    POINTS,
    SCRIPT,
    SIGNS,
    WAITS,
    Node,
)
from harness.checkout import CHECKOUT
from harness.owed import CLOCK
from harness.queues import RunningQueue, kept
from harness.small_disk import small_disk
from harness.waiting import wait_until
from rq.errors import RQError

SIZE = "16m"  # of a disk that is full now and then
LEFT = (0, 0, 4096, 65536, 1 << 20)  # bytes that it has left then
DOWN = 3.0  # seconds for which a queue is down: it is asked as seldom as ever then
HOUR, DAY = 3600, 86400
# Of sentences that tell to ask again, as of a queue that is stopped to be started again.
_AGAIN = ("answer", "say", "busy", "stopping")
# No more than a day: what is owed for a week is in doubt, which is a rule of its own.
JUMPS = (-DAY, -HOUR, -10, 0, 10, HOUR, DAY)


class World:
    """Queues whose owners are killed, and who is asked of them."""

    env: ClassVar[Mapping[str, str]] = {}
    looked_at_last: tuple[
        str, ...
    ] = ()  # queues that are not to be asked before others

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.kills = self.harms = 0
        self.queues = {n: RunningQueue(root, n, SCRIPT, num_workers=2) for n in NAMES}
        for queue in self.queues.values():
            queue.env = dict(self.env)

    @classmethod
    @contextlib.contextmanager
    def on(cls, root: Path, chance: random.Random) -> Iterator[World]:
        """Give a world that lives; in the end each of its queues is checked."""
        world = cls(root, chance)
        with contextlib.ExitStack() as stack:
            for queue in world.queues.values():
                stack.enter_context(kept(queue))
            yield world
            world.heal()

    def place(self, nodes: list[Node]) -> None:
        """Choose other queues for messages, where it matters which."""

    def deafen(self) -> None:
        """Let what waits not hear for now what becomes of others."""

    def begin(self) -> None:
        """Do the harm of this world, when all has been asked for and is to come about."""

    def harm(self) -> None:
        """Kill a queue at once or at a named point, or start one that is dead."""
        queue = self.queues[self.chance.choice(NAMES)]
        if not queue.alive:
            self.heal()
        elif self.chance.random() < 0.3:
            queue.crash()
        elif self.chance.random() < 0.5:
            with contextlib.suppress(ProcessLookupError):
                queue.crash_at(self.chance.choice(POINTS))

    def heal(self) -> None:
        for queue in self.queues.values():
            if not queue.alive:
                self.kills += 1
                queue.start()

    def stop(self) -> None:
        """Stop all; one may be to die at a point that it passes now."""
        self.heal()
        for queue in self.queues.values():
            while queue.stop() != 0:
                queue.start()

    def start(self) -> None:
        for queue in self.queues.values():
            queue.start()

    def ask(self, name: str, command: str, arg: object) -> Any:
        """Ask until there is an answer."""

        def answered() -> list[object]:
            with contextlib.suppress(RQError, OSError):
                word, answer = self.queues[name].ask(command, arg)
                if word == "ok":
                    return [answer]
                assert any(word in answer for word in _AGAIN), answer
            self.heal()
            return []

        return wait_until(answered, 60)[0]

    def stands(self, node: Node) -> str:
        if node.fate in (DELETED, LOST):
            return node.fate
        message = self.message(node)
        if message["state"] in ("que", "run", "prep"):
            return WAITS
        result = message["result"]
        return NOT_RUN if result.get("outcome") == NOT_RUN else str(result["cause"])

    def message(self, node: Node) -> dict[str, Any]:
        """Return a message, which may go on elsewhere."""
        while True:
            queue, _, msg_id = node.place.partition("/")
            message: dict[str, Any] = self.ask(queue, "get_message", {"msg_id": msg_id})
            place = message["result"].get("goes_on")
            if place is None and message["state"] != "relayed":
                return message
            if place is not None:
                node.been.append(node.place)
                node.place = place
            self.heal()  # else it may be on its way for ever

    def ran(self) -> list[str]:
        path = self.root / "ran"
        return path.read_text().splitlines() if path.exists() else []


class NoHints(World):
    """Owners remember nobody who wants to hear, so all is heard by asking again."""

    env: ClassVar[Mapping[str, str]] = {"TEST_ASKERS": "0", "TEST_ROUND": "1"}

    def begin(self) -> None:
        self.harms += 1


class Jumps(World):
    """The clock of all owners jumps, ahead and back."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        super().__init__(root, chance)
        place = root / "clock"
        place.mkdir()
        (place / "sitecustomize.py").write_text(CLOCK)
        self.offset = place / "offset"
        self.jump(0)
        path = os.pathsep.join([str(place), str(CHECKOUT)])
        for queue in self.queues.values():
            queue.env = {"PYTHONPATH": path, "TEST_CLOCK": str(self.offset)}
            queue.env["TEST_TICK"] = "0.2"

    def jump(self, seconds: float) -> None:
        """Set the clock: what is done at once meets owners that have not noticed."""
        new = self.offset.with_name("new")
        new.write_text(str(seconds))
        new.rename(self.offset)

    def begin(self) -> None:
        """Put the clock back by a day: what is to be asked next must not be a day away."""
        self.harms += 1
        self.jump(-DAY * self.harms)

    def harm(self) -> None:
        if self.chance.random() < 0.5:
            self.jump(self.chance.choice(JUMPS) - DAY * self.harms)
        else:
            super().harm()


class FullDisk(World):
    """The disk on which all queues lie is full now and then, for a moment."""

    @classmethod
    @contextlib.contextmanager
    def on(cls, root: Path, chance: random.Random) -> Iterator[World]:
        with small_disk(root, SIZE, part="process"), super().on(root, chance) as world:
            assert isinstance(world, FullDisk)
            with world.filled():
                yield world

    def __init__(self, root: Path, chance: random.Random) -> None:
        for sign in SIGNS:  # what the test and its scripts tell each other finds room
            (root / sign).symlink_to(root.with_name(sign))
        super().__init__(root, chance)
        self.over = threading.Event()
        self.full = threading.Lock()  # held while it is

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Fill the disk and free it, again and again."""
        seed = self.chance.random()
        thread = threading.Thread(target=self.fill_and_free, args=(seed,))
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def fill_and_free(self, seed: float) -> None:
        chance, ballast = random.Random(seed), self.root / "ballast"
        while not self.over.wait(chance.uniform(0.05, 0.6)):
            with self.full:
                fill(ballast, chance.choice(LEFT))
                self.harms += 1
                self.over.wait(chance.uniform(0.05, 0.6))
                ballast.unlink()

    def harm(self) -> None:
        with contextlib.suppress(OSError):  # no room for the name of a point
            super().harm()

    def stop(self) -> None:
        self.full.acquire()
        super().stop()

    def start(self) -> None:
        super().start()
        self.full.release()

    def heal(self) -> None:
        """Start those that are dead; without room one may refuse to start, and says why."""
        for queue in self.queues.values():
            if not queue.alive:
                self.kills += 1
                wait_until(lambda q=queue: self.started(q))

    @staticmethod
    def started(queue: RunningQueue) -> bool:
        try:
            queue.start()
        except AssertionError:
            assert not queue.alive or "No space" in queue.log()
            queue.kill()
        return queue.alive


class LongDown(World):
    """One queue is away for so long that it is asked as seldom as one ever is."""

    env: ClassVar[Mapping[str, str]] = {"TEST_ROUND": "2"}
    away: RunningQueue | None = None
    until = 0.0

    def begin(self) -> None:
        """Let it die, after which nothing tells of it, or stop it: its folders tell all."""
        self.heal()
        self.harms += 1
        self.away = self.queues[NAMES[self.harms % len(NAMES)]]
        self.until = time.monotonic() + DOWN
        if self.chance.random() < 0.5:
            self.away.crash()
        else:
            self.away.stop()

    def heal(self) -> None:
        for queue in self.queues.values():
            is_away = queue is self.away and time.monotonic() < self.until
            if not queue.alive and not is_away:
                self.kills += 1
                queue.start()

    def stop(self) -> None:
        self.until = 0.0
        super().stop()


def fill(ballast: Path, left: int) -> None:
    """Leave about so many bytes on the disk on which a file is to lie."""
    room = os.statvfs(ballast.parent)
    size = room.f_bavail * room.f_frsize - left
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        if size > 0:
            os.posix_fallocate(file.fileno(), 0, size)


HARMS: dict[str, type[World]] = {
    "kills": World,
    "no hints": NoHints,
    "clock jumps": Jumps,
    "full disk": FullDisk,
    "long down": LongDown,
}
