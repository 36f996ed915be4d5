"""Three agents on three hosts, and whatever can happen to them, to the links, and to the RQ
whose queue they work off: nothing is lost, nothing counts twice, nothing works on without a
lease. RQ_CHAOS_SECONDS says for how long, RQ_CHAOS_SEED which accidents."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from harness.checkout import CHECKOUT
from harness.journal_files import lines
from harness.processes import lives
from harness.waiting import wait_until

from rq.errors import RQError

pytestmark = [pytest.mark.stress, pytest.mark.system]

SECONDS = float(os.environ.get("RQ_CHAOS_SECONDS", "60"))
LEASE = 3  # seconds
LATE = 5.0  # seconds that a script may live after its lease
RUN = """#!/bin/sh
echo "$$ $PWD" >> DIR/pids
echo "attempt $RQ_COUNT of $RQ_PARAM1"
case "$RQ_PARAM1" in
*[05]) sleep 6 ;;
*[16]) sleep 1; test "$RQ_COUNT" -gt 0 || { echo "resend 0-again" >&3; exit 0; } ;;
*[27]) mkdir results; echo "$RQ_PARAM1" > results/number ;;
*3) trap '' TERM; sleep 2 & sleep 2 ;;
esac
echo "done $RQ_PARAM1" >&3
"""


class Agent:
    """An agent on a host, started again whenever it was killed."""

    def __init__(self, host, path, queue):
        self.host, self.path, self.queue = host, path, queue
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
        self.start()

    def start(self):
        with (self.path / "log").open("a") as log:
            self.process = subprocess.Popen(self.command, cwd=CHECKOUT, stderr=log)

    def at_work(self):
        """Return the scripts that live: their processes, messages and attempts."""
        for line in (self.path / "pids").read_text().splitlines():
            pid, _, place = line.partition(" ")
            if lives(int(pid)):
                msg_id, _, attempt = place.split("/")[-2].partition("~")
                yield int(pid), msg_id, int(attempt)

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)


class Accidents:
    """What happens, by chance."""

    def __init__(self, home, agents, seed):
        self.home, self.agents = home, agents
        self.random = random.Random(seed)
        self.undo = []  # when, and what
        self.happened = collections.Counter()

    def step(self, now):
        for entry in [entry for entry in self.undo if entry[0] <= now]:
            self.undo.remove(entry)
            entry[1]()
        for agent in self.agents:
            if agent.process.poll() is not None:
                agent.start()
        if self.random.random() < 0.1:
            acts = [self.kill, self.stop, self.cut, self.slow, self.term] * 4
            act = self.random.choice([*acts, self.kill_owner, self.kill_web])
            self.happened[act.__name__] += 1
            act(self.random.choice(self.agents), now)

    def later(self, now, longest, act):
        self.undo.append((now + self.random.uniform(0.2, longest), act))

    def kill(self, agent, now):
        agent.signal(signal.SIGKILL)

    def term(self, agent, now):
        agent.signal(signal.SIGTERM)

    def stop(self, agent, now):
        agent.signal(signal.SIGSTOP)
        agent.stopped_until = float("inf")
        self.later(now, 2.5 * LEASE, lambda: self.go_on(agent))

    def go_on(self, agent):
        agent.signal(signal.SIGCONT)
        agent.stopped_until = time.monotonic()

    def cut(self, agent, now):
        agent.host.plug("down")
        self.later(now, 2.5 * LEASE, lambda: agent.host.plug("up"))

    def slow(self, agent, now):
        agent.host.slow(self.random.choice([8, 64, 512]))
        self.later(now, 2 * LEASE, lambda: agent.host.slow(0))

    def kill_owner(self, agent, now):
        with contextlib.suppress(RQError, OSError):
            self.home.kill("far")

    def kill_web(self, agent, now):
        with contextlib.suppress(RQError, OSError):
            self.home.kill("web")

    def end(self):
        for _, undo in self.undo:
            undo()
        self.undo = []


class Overstayers:
    """Scripts that live though their lease is over, and since when."""

    def __init__(self, home, agents):
        self.home, self.agents = home, agents
        self.since = {}
        self.caught = []

    def look(self, now):
        held = self.leases()
        if held is None:  # nobody knows
            self.since.clear()
            return
        seen = set()
        for agent in self.agents:
            for pid, msg_id, attempt in agent.at_work():
                if (msg_id, attempt) in held or agent.stopped_until == float("inf"):
                    continue
                seen.add(pid)
                since = max(self.since.setdefault(pid, now), agent.stopped_until)
                if now - since > LATE:
                    self.caught.append((agent.path.name, msg_id, attempt, now - since))
        self.since = {pid: at for pid, at in self.since.items() if pid in seen}

    def leases(self):
        try:
            reply = self.home.ask_queue("far", "leases", {"limit": 1000})
        except (RQError, OSError):
            return None
        if reply[0] != "ok":
            return None
        return {(row["msg_id"], row["attempt"]) for row in reply[1]["leases"]}


@pytest.mark.parametrize("cables", [4], indirect=True)
def test_nothing_is_lost_and_nothing_counts_twice(cables, tmp_path):
    home, *others = cables.hosts
    home.start()
    home.until_up("web", 60)
    home.create("far", num_workers=0, pull={"seconds": LEASE})
    agents = [Agent(host, tmp_path / host.space, home.url("far")) for host in others]
    accidents = Accidents(home, agents, os.environ.get("RQ_CHAOS_SEED", time.time()))
    overstayers = Overstayers(home, agents)
    sent = set()
    end = time.monotonic() + SECONDS
    try:
        while (now := time.monotonic()) < end:
            send(home, sent)
            accidents.step(now)
            overstayers.look(now)
            wait_until(lambda at=now: time.monotonic() > at + 0.2)
        accidents.end()
        for agent in agents:
            agent.signal(signal.SIGCONT)
        wait_until(lambda: all_done(accidents, home, len(sent)), 120)
    finally:
        accidents.end()
        for agent in agents:
            agent.signal(signal.SIGCONT)
            agent.signal(signal.SIGTERM)
        for agent in agents:
            agent.process.wait(60)
    print(f"{len(sent)} messages, {dict(accidents.happened)}")  # noqa: T201
    assert overstayers.caught == []
    check(home, sent)


def send(home, sent):
    """Send some messages; of one whose answer is lost, the key tells."""
    for _ in range(3):
        number = len(sent)
        fields = {"dest": "far", "param1": str(number), "max_count": 1000}
        try:
            reply = home.ask_queue("far", "create_message", {**fields, "_key": number})
        except (RQError, OSError):
            return
        if reply[0] == "ok":
            sent.add(number)


def all_done(accidents, home, count):
    for agent in accidents.agents:
        if agent.process.poll() is not None:
            agent.start()
    return home.ask_queue("far", "num_messages")["done"] >= count


def check(home, sent):
    """Compare what the queue holds, and its journal, with what was sent."""
    counts = home.ask_queue("far", "num_messages")
    assert (counts["que"], counts["run"], counts["err"]) == (0, 0, 0)
    assert home.ask_queue("far", "check")[1] == {"problems": []}
    home.ask_queue("far", "seal")
    ends = collections.Counter(
        line["msg"] for line in lines(home.root) if line.get("ev") == "finish"
    )
    assert set(ends.values()) == {1}
    assert len(ends) == len(sent)
