"""How work ends at an agent, against a host that a test plays: stopped, killed, cancelled, lost,
or kept until the host can be reached."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness.agents import QUIET, pid_of, sleeping
from harness.checkout import CHECKOUT
from harness.processes import lives
from harness.waiting import wait_until


def test_a_stopped_agent_gives_back_what_does_not_end(host, agent):
    sleeping(agent, host)
    with agent.running("--grace", "0.2"):
        pid = pid_of(agent)
    assert not lives(pid)
    assert host.said("finish") == []
    assert [given["why"] for given in host.said("release")] == ["its worker stops"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_not_ready_ends_as_one_that_is(host, agent, number):
    host.is_silent = True
    agent.begin()
    wait_until(lambda: host.visits)  # for its script
    said = agent.end(number)
    assert agent.process.returncode == 0
    assert "Traceback" not in said


def test_an_agent_that_has_not_begun_ends_as_one_that_works(host, agent):
    """A Python of its own: its first moments are what matters."""
    with subprocess.Popen(
        agent.command(), cwd=CHECKOUT, stderr=subprocess.PIPE, text=True
    ) as process:
        status = Path(f"/proc/{process.pid}/status")
        wait_until(lambda: catches(status.read_text(), signal.SIGTERM))
        process.terminate()
        said = process.stderr.read()
    assert process.returncode == 0
    assert said.count("\n") <= 1


AMONG_ITS_IMPORTS = """
import os, signal
from rq.work import stop_signals

class Told:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGTERM)

stop_signals.exit_when_told()

class Slot:
    since = Told()
"""


def test_an_agent_that_is_told_among_its_imports_ends_as_one_that_works():
    words = [sys.executable, "-c", AMONG_ITS_IMPORTS]
    ran = subprocess.run(words, cwd=CHECKOUT, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def catches(status, number):
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return caught >> (number - 1) & 1


def test_scripts_of_a_killed_agent_die_with_it(host, agent):
    sleeping(agent, host)
    with agent.running():
        pid = pid_of(agent)
        agent.end(signal.SIGKILL)
        wait_until(lambda: not lives(pid))
    assert host.said("finish") == host.said("release") == []


def test_a_cancelled_message_ends_at_once(host, agent):
    sleeping(agent, host)
    with agent.running():
        pid = pid_of(agent)
        host.cancels = {host.said("start")[0]["token"].split("~")[0]: "by kim"}
        wait_until(lambda: not lives(pid))
        wait_until(lambda: host.said("finish"))
    assert host.said("finish")[0]["signal"] == "SIGTERM"


def test_work_ends_before_a_lease_that_nobody_renews(host, agent):
    host.seconds = 1.5
    sleeping(agent, host)
    with agent.running():
        pid = pid_of(agent)
        host.is_silent = True
        wait_until(lambda: not lives(pid))
        host.is_silent = False
        wait_until(lambda: host.said("release"))
    assert host.said("release")[0]["why"] == "its worker could not reach the queue"


def test_a_lease_that_was_waited_for_long_is_renewed_before_the_work(host, agent):
    host.seconds = 1
    agent.runs(QUIET)
    with agent.running():
        wait_until(lambda: host.polls and time.monotonic() > host.polls[0] + 1.5)
        host.give()
        wait_until(lambda: host.ends() == ["done"])
    assert "renew" in [word for word, _ in host.words][:2]  # before or beside the start
    assert host.said("release") == []


def test_work_goes_on_without_a_lease_if_it_shall(host, agent):
    host.seconds = 0.5
    host.give()
    agent.runs(f"until test -e {agent.path}/go; do sleep 0.01; done; {QUIET}")
    with agent.running("--go-on") as running:
        wait_until(lambda: host.said("start"))
        host.is_silent = True
        wait_until(lambda: agent.process.poll() is None and host.is_silent)
        (agent.path / "go").touch()
        wait_until(lambda: list(agent.dir.glob("*/*/msg/*/end.json")))
        host.is_silent = False
        wait_until(lambda: host.ends() == ["done"])
        wait_until(lambda: running.folders() == [])


def test_a_message_that_is_lost_is_let_go(host, agent):
    host.seconds = 0.6
    over = {"ok": False, "kind": "lease_over", "text": "it was given to kim"}
    host.instead["leases/renew"] = lambda asked: (
        200,
        {"results": [{"token": token, **over} for token in asked["tokens"]]},
    )
    sleeping(agent, host)
    with agent.running():
        pid = pid_of(agent)
        wait_until(lambda: not lives(pid))
        wait_until(lambda: agent.folders() == [])
    assert host.said("finish") == host.said("release") == []


def test_a_message_that_is_lost_before_its_files_are_here_is_let_go(host, agent):
    host.seconds = 0.6
    over = {"ok": False, "kind": "lease_over", "text": "it was given to kim"}
    host.instead["leases/renew"] = lambda asked: (
        200,
        {"results": [{"token": token, **over} for token in asked["tokens"]]},
    )
    host.instead["attach"] = lambda path: (503, {"detail": "not now"})
    host.give(files={"a": b"x"})
    agent.runs(QUIET)
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert "a lease is over" in ended.stderr
    assert host.ends() == []
    assert agent.folders() == []


def test_a_message_that_no_environment_can_hold_is_given_back(host, agent):
    agent.runs(QUIET)
    host.give(param1="a\0b")
    host.give(orig_msg_id="a\0b")
    host.give(src="a\nb", param2="a\nb")
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert host.ends() == ["done"]
    assert len(host.said("release")) == 2


# ---- what could not be handed in


def test_an_end_survives_the_agent_that_could_not_hand_it_in(host, agent):
    token = host.give()
    agent.runs(f"echo printed; until test -e {agent.path}/go; do :; done; {QUIET}")
    with agent.running():
        wait_until(lambda: host.logs.get(token))
        host.is_silent = True
        (agent.path / "go").touch()
        wait_until(lambda: list(agent.dir.glob("*/*/msg/*/end.json")))
        agent.end(signal.SIGKILL)
    host.is_silent = False
    assert agent.once().returncode == 0
    assert [end["token"] for end in host.said("finish")] == [token]
    assert host.logs[token] == b"printed\n"
    assert agent.folders() == []


def test_an_end_survives_a_host_that_has_forgotten_the_login(host, agent):
    token = host.give()
    agent.runs(f"until test -e {agent.path}/go; do sleep 0.01; done; {QUIET}")
    with agent.running():
        wait_until(lambda: host.said("start"))
        host.is_closed = True
        (agent.path / "go").touch()
        wait_until(lambda: list(agent.dir.glob("*/*/msg/*/end.json")))
        assert agent.process.wait(20) != 0
    refused = agent.once()
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    host.is_closed = False
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert [end["token"] for end in host.said("finish")] == [token]
    assert agent.folders() == []
