"""Agents on hosts, and what can happen to them, to their links, to the clocks of all hosts,
and to the RQ whose queue they work off."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.clocks import DAY, HOUR, Clock
from harness.checkout import CHECKOUT
from harness.processes import lives
from hosts.conftest import Host

from rq.errors import RQError

LEASE = 3  # seconds
RUN = """#!/bin/sh
echo "$$ $PWD" >> DIR/pids
echo "attempt $RQ_COUNT of $RQ_PARAM1"
case "$RQ_PARAM1" in
*0) sleep 20 ;;
*5) sleep 6 ;;
*[16]) sleep 1; test "$RQ_COUNT" -gt 0 || { echo "resend 0-again" >&3; exit 0; } ;;
*[27]) mkdir results; echo "$RQ_PARAM1" > results/number ;;
*3) trap '' TERM; sleep 60 & echo "$! $PWD" >> DIR/pids; sleep 2 ;;
esac
echo "done $RQ_PARAM1, ${PWD%/job}" >&3
"""


@dataclass(frozen=True)
class AtWork:
    """A process of a script."""

    pid: int
    place: str  # the working directory of its script

    @property
    def attempt(self) -> tuple[str, int]:
        """The message, and the number of the attempt."""
        msg_id, _, number = self.place.split("/")[-2].partition("~")
        return msg_id, int(number)

    @property
    def lives(self) -> bool:
        """Whether it is there: another process that has its pid works elsewhere."""
        try:
            where = os.readlink(f"/proc/{self.pid}/cwd")
        except OSError:
            return False
        return where.removesuffix(" (deleted)") == self.place and lives(self.pid)


class Agent:
    """An agent on a host, started again whenever it was killed."""

    def __init__(self, host: Host, path: Path, queue: str, clock: Clock) -> None:
        self.host, self.path, self.clock = host, path, clock
        script = path / "script"
        script.mkdir(parents=True)
        run = script / "run"
        run.write_text(RUN.replace("DIR", str(path)))
        run.chmod(0o755)
        (script / "config.json").write_text('{"nice": 0}')
        (path / "pids").touch()
        words = ["work", queue, "--slots", "3", "--label", path.name, "--grace", "1"]
        words += ["--script", str(script), "--dir", str(path / "dir")]
        space = ["ip", "netns", "exec", host.space]
        self.command = [*space, sys.executable, "-m", "rq.cli", *words]
        self.stopped_until = 0.0
        self._read = 0
        self._known: list[AtWork] = []
        self.start()

    def start(self) -> None:
        with (self.path / "log").open("a") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=CHECKOUT,
                stderr=log,
                env={**os.environ, **self.clock.env},
            )

    def start_if_dead(self) -> None:
        if self.process.poll() is not None:
            self.start()

    def at_work(self) -> Iterator[AtWork]:
        """Return the processes of its scripts that live."""
        with (self.path / "pids").open() as file:
            file.seek(self._read)
            new = file.read().rpartition("\n")[0]
        self._read += len(new) + 1 if new else 0
        for line in new.splitlines():
            pid, _, place = line.partition(" ")
            self._known.append(AtWork(int(pid), place))
        self._known = [one for one in self._known if one.lives]
        yield from self._known

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self.process.wait(60)


class Accidents:
    """What happens, by chance; none of its kinds is left out for long."""

    def __init__(
        self, home: Host, clock: Clock, agents: Sequence[Agent], seed: object
    ) -> None:
        self.home, self.agents = home, agents
        self.clocks = [clock, *(agent.clock for agent in agents)]
        self.random = random.Random(str(seed))
        self.undo: list[tuple[float, Callable[[], None]]] = []  # when, and what
        self.happened: collections.Counter[str] = collections.Counter()
        often = [self.kill, self.term, self.stop, self.cut, self.slow]
        rare = [self.kill_owner, self.kill_web, self.turn_clock, self.turn_clock]
        self.kinds = often * 4 + rare
        self._next: list[Callable[[Agent, float], None]] = []

    def step(self, now: float) -> None:
        for entry in [entry for entry in self.undo if entry[0] <= now]:
            self.undo.remove(entry)
            entry[1]()
        for agent in self.agents:
            agent.start_if_dead()
        if self.random.random() < 0.1:
            if not self._next:
                self._next = self.random.sample(self.kinds, len(self.kinds))
            act = self._next.pop()
            self.happened[act.__name__] += 1
            act(self.random.choice(self.agents), now)

    def later(self, now: float, longest: float, act: Callable[[], None]) -> None:
        self.undo.append((now + self.random.uniform(0.2, longest), act))

    def end(self) -> None:
        """Let nothing stand still or be cut off any more."""
        for _, undo in self.undo:
            undo()
        self.undo = []
        for agent in self.agents:
            self.go_on(agent)

    # ---- the kinds

    def kill(self, agent: Agent, now: float) -> None:
        agent.signal(signal.SIGKILL)

    def term(self, agent: Agent, now: float) -> None:
        agent.signal(signal.SIGTERM)

    def stop(self, agent: Agent, now: float) -> None:
        """Let an agent stand still, often past its leases."""
        agent.signal(signal.SIGSTOP)
        agent.stopped_until = float("inf")
        self.later(now, 2.5 * LEASE, lambda: self.go_on(agent))

    def go_on(self, agent: Agent) -> None:
        agent.signal(signal.SIGCONT)
        agent.stopped_until = time.monotonic()

    def cut(self, agent: Agent, now: float) -> None:
        """Unplug a host, often for longer than a script may live without its lease."""
        agent.host.plug("down")
        self.later(now, 6 * LEASE, lambda: agent.host.plug("up"))

    def slow(self, agent: Agent, now: float) -> None:
        agent.host.slow(self.random.choice([8, 64, 512]))
        self.later(now, 2 * LEASE, lambda: agent.host.slow(0))

    def kill_owner(self, agent: Agent, now: float) -> None:
        with contextlib.suppress(RQError, OSError):
            self.home.kill("far")

    def kill_web(self, agent: Agent, now: float) -> None:
        with contextlib.suppress(RQError, OSError):
            self.home.kill("web")

    def turn_clock(self, agent: Agent, now: float) -> None:
        """Let the wall clock of some host jump."""
        seconds = self.random.choice([-DAY, -HOUR, -LEASE, 0, LEASE, HOUR, DAY])
        self.random.choice(self.clocks).set(seconds)
