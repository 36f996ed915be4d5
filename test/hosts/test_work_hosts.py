"""Agents on two hosts work off one queue; one is killed, one is unplugged: every message is
finished, once."""

import signal
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.processes import lives
from harness.waiting import wait_until

pytestmark = pytest.mark.system

MESSAGES = 60
SECONDS = 2  # of a lease
RUN = """#!/bin/sh
echo $$ >> DIR/pids
echo "$RQ_PARAM1" >> DIR/started
sleep 0.1
echo "done by $(cat DIR/name)" >&3
"""


class Agent:
    """An agent in the namespace of a host."""

    def __init__(self, host, path, queue):
        self.path = path
        self.script = path / "script"
        self.script.mkdir(parents=True)
        run = self.script / "run"
        run.write_text(RUN.replace("DIR", str(path)))
        run.chmod(0o755)
        (self.script / "config.json").write_text('{"nice": 0}')
        (path / "name").write_text(path.name)
        (path / "pids").touch()
        words = ["work", queue, "--slots", "2", "--label", path.name, "--grace", "1"]
        words += ["--script", str(self.script), "--dir", str(path / "dir")]
        space = ["ip", "netns", "exec", host.space]
        self.process = subprocess.Popen(
            [*space, sys.executable, "-m", "rq.cli", *words], cwd=CHECKOUT
        )

    def at_work(self):
        """Return the processes of its scripts that live."""
        pids = map(int, (self.path / "pids").read_text().split())
        return [pid for pid in pids if lives(pid)]

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def agents(cables, tmp_path):
    started = []

    def start(host, name, queue):
        started.append(Agent(host, tmp_path / name, queue))
        return started[-1]

    yield start
    for agent in started:
        agent.end()


def test_two_hosts_work_off_the_queue_of_a_third(cables, agents):
    home, one, two = cables.hosts
    home.start()
    home.until_up("web", 60)
    settings = {"num_workers": 0, "pull": {"seconds": SECONDS}}
    home.create("far", **settings)
    for number in range(MESSAGES):
        fields = {"dest": "far", "param1": str(number)}
        assert home.ask_queue("far", "create_message", fields)[0] == "ok"
    killed = agents(one, "killed", home.url("far"))
    unplugged = agents(two, "unplugged", home.url("far"))

    def done():
        return home.ask_queue("far", "num_messages")["done"]

    wait_until(lambda: killed.at_work() and unplugged.at_work() and done() > 4)
    killed.process.send_signal(signal.SIGKILL)
    two.plug("down")
    wait_until(lambda: not killed.at_work() and not unplugged.at_work())
    two.plug("up")
    wait_until(lambda: done() == MESSAGES, 60)
    counts = home.ask_queue("far", "num_messages")
    assert (counts["err"], counts["run"], counts["que"]) == (0, 0, 0)
    assert home.ask_queue("far", "check")[1] == {"problems": []}
