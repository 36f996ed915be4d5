"""Three agents on three hosts, and whatever can happen to them, to the links, the clocks,
and to the RQ whose queue they work off: nothing is lost, nothing counts twice, nothing works
on without a lease. RQ_CHAOS_SECONDS says for how long, RQ_CHAOS_SEED which accidents."""

from __future__ import annotations

import collections
import faulthandler
import os
import time

import pytest
from harness.journal_files import lines
from harness.waiting import wait_until
from hosts.accidents import LEASE, Accidents, Agent

from rq.errors import RQError

pytestmark = [pytest.mark.stress, pytest.mark.system]

SECONDS = float(os.environ.get("RQ_CHAOS_SECONDS", "60"))
LONG = 300.0  # seconds in which all kinds of accidents have happened
WAITING = 30  # messages: so many are always there to be worked on
LATE = 5.0  # seconds that a script may live after its lease


class Overstayers:
    """Processes of scripts that live though their lease is over, and since when."""

    def __init__(self, home, agents):
        self.home, self.agents = home, agents
        self.since = {}
        self.caught = []
        self.looks = (
            collections.Counter()
        )  # in which nobody knew, none was late, some were

    def look(self, now):
        held = self.leases()
        if held is None:  # nobody knows
            self.looks["nobody knew"] += 1
            self.since.clear()
            return
        late = {}
        for agent in self.agents:
            for one in agent.at_work():
                if one.attempt in held or agent.stopped_until == float("inf"):
                    continue
                late[one] = max(self.since.get(one, now), agent.stopped_until)
                if now - late[one] > LATE:
                    self.caught.append((agent.path.name, one, now - late[one]))
        self.since = late
        self.looks["some were late" if late else "none was late"] += 1

    def leases(self):
        try:
            reply = self.home.ask_queue("far", "leases", {"limit": 1000})
        except (RQError, OSError):
            return None
        if reply[0] != "ok":
            return None
        return {(row["msg_id"], row["attempt"]) for row in reply[1]["leases"]}


@pytest.mark.parametrize("cables", [4], indirect=True)
def test_nothing_is_lost_and_nothing_counts_twice(cables, clocks, tmp_path):
    home, *others = cables.hosts
    own, *theirs = (clocks(host.space) for host in cables.hosts)
    home.env |= own.env
    home.start()
    home.until_up("web", 60)
    home.create("far", num_workers=0, pull={"seconds": LEASE})
    agents = [
        Agent(host, tmp_path / host.space, home.url("far"), clock)
        for host, clock in zip(others, theirs, strict=True)
    ]
    seed = os.environ.get("RQ_CHAOS_SEED", str(time.time()))
    accidents = Accidents(home, own, agents, seed)
    overstayers = Overstayers(home, agents)
    sent = set()
    faulthandler.cancel_dump_traceback_later()  # it takes longer than a test that hangs
    try:
        chaos(accidents, overstayers, home, sent)
        wait_until(lambda: all_done(agents, home, len(sent)), 240)
    finally:
        accidents.end()
        for agent in agents:
            agent.end()
    about = f"{dict(accidents.happened)}, {dict(overstayers.looks)}, seed {seed}"
    print(f"{len(sent)} messages, {about}")  # noqa: T201
    assert overstayers.caught == []
    ends = check(home, sent)
    if SECONDS >= LONG:
        assert set(accidents.happened) == {act.__name__ for act in accidents.kinds}
        assert ends["lease_ended"] > 0  # else no accident has reached a message
    print(dict(ends))  # noqa: T201


def chaos(accidents, overstayers, home, sent):
    """Send messages, and let happen what happens, until the time is over."""
    end = time.monotonic() + SECONDS
    while (now := time.monotonic()) < end:
        send(home, sent)
        accidents.step(now)
        overstayers.look(now)
        wait_until(lambda at=now: time.monotonic() > at + 0.2)
    accidents.end()


def send(home, sent):
    """Send some messages, unless enough wait; of one whose answer is lost, the key tells."""
    for _ in range(3):
        number = len(sent)
        fields = {"dest": "far", "param1": str(number), "max_count": 1000}
        try:
            if home.ask_queue("far", "num_messages")["que"] >= WAITING:
                return
            reply = home.ask_queue("far", "create_message", {**fields, "_key": number})
        except (RQError, OSError):
            return
        if reply[0] == "ok":
            sent.add(number)


def all_done(agents, home, count):
    for agent in agents:
        agent.start_if_dead()
    return home.ask_queue("far", "num_messages")["done"] >= count


def check(home, sent):
    """Compare what the queue holds, and its journal, with what was sent; return how often
    each cause has ended an attempt."""
    counts = home.ask_queue("far", "num_messages")
    assert (counts["que"], counts["run"], counts["err"]) == (0, 0, 0)
    assert home.ask_queue("far", "check")[1] == {"problems": []}
    home.ask_queue("far", "seal")
    events = list(lines(home.root))
    check_attempts(events)
    ends = collections.Counter(
        line["msg"] for line in events if line.get("ev") == "finish"
    )
    assert set(ends.values()) == {1}
    assert len(ends) == len(sent)
    return collections.Counter(line["cause"] for line in events if line.get("cause"))


def check_attempts(events):
    """Compare each end with the attempt that was at work then, and with what its script
    has said: no two are at work at a time, and none ends another."""
    at_work = {}
    for line in events:
        if line.get("ev") == "claim":
            assert line["msg"] not in at_work, line
            at_work[line["msg"]] = line
        elif line.get("was") == "run":
            begun = at_work.pop(line["msg"])
            assert line["attempt"] == begun["attempt"], (begun, line)
            assert line["lease"]["hash"] == begun["lease"]["hash"], (begun, line)
        if line.get("ev") == "finish":
            assert line["text"].endswith(f"~{line['attempt']}"), line
    assert at_work == {}
