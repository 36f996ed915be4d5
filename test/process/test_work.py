"""The agent `rq work` against a host that a test plays: what it does, and what no host may
make it do."""

from __future__ import annotations

import contextlib
import hashlib
import io
import signal
import subprocess
import sys
import tarfile
import time

import pytest
from harness.checkout import CHECKOUT
from harness.lease_host import lease_host
from harness.processes import lives
from harness.waiting import wait_until

QUIET = 'echo "done fine" >&3'


@pytest.fixture
def host():
    with lease_host() as host:
        yield host


class Agent:
    """An agent with a directory and a script of its own."""

    def __init__(self, path, host):
        self.path = path
        self.host = host
        self.script = path / "script"
        self.dir = path / "dir"
        self.process = None

    def runs(self, script, config=""):
        self.script.mkdir(exist_ok=True)
        run = self.script / "run"
        run.write_text(f"#!/bin/sh\n{script}\n")
        run.chmod(0o755)
        if config:
            (self.script / "config.json").write_text(config)

    def command(self, *words):
        at = [sys.executable, "-m", "rq.cli", "work", self.host.url]
        return [*at, "--dir", str(self.dir), "--grace", "2", *words]

    def once(self, *words, file_limit=-1):
        """Run until nothing is due; return how it ended and what it wrote. `file_limit`:
        bytes that it can write into a file."""
        script = ["--script", str(self.script)] if self.script.exists() else []
        return subprocess.run(
            ["prlimit", f"--fsize={file_limit}", *self.command("--once", *script, *words)],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    @contextlib.contextmanager
    def running(self, *words):
        """Run until the block ends, and to its end."""
        self.process = subprocess.Popen(
            self.command("--script", str(self.script), *words),
            cwd=CHECKOUT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            yield self
        finally:
            self.end()

    def end(self, number=signal.SIGTERM):
        """End it; return what it wrote."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=30)
        return said

    def folders(self):
        """Return what lies in the folders of messages."""
        return [path.name for path in self.dir.glob("*/*/msg/*")]


@pytest.fixture
def agent(tmp_path, host):
    return Agent(tmp_path, host)


def test_a_message_is_laid_out_run_and_handed_in(host, agent):
    agent.runs('cat ../attach/a; echo "$RQ_PARAM1 $RQ_COUNT"; pwd; ' + QUIET)
    token = host.give(files={"a": b"attached\n"}, param1="one")
    other = host.give(param1="two words")
    ended = agent.once("--slots", "2")
    assert ended.returncode == 0, ended.stderr
    assert {end["token"] for end in host.said("finish")} == {token, other}
    end = host.said("finish")[0]
    assert (end["word"], end["exit"]) == ("done", 0)
    assert host.logs[token].startswith(b"attached\none 0\n/")
    assert host.logs[token].endswith(b"/job\n")
    assert [start["token"] for start in host.said("start")] == [token, other]
    assert agent.folders() == []


def test_all_that_a_script_says_travels(host, agent):
    says = {
        "err": "echo 'err broken' >&3",
        "later": "echo 'later 9@db not yet' >&3",
        "none": "echo last words; exit 3",
        "copy": "echo 'dup 5-X-other' >&3; read a <&4; echo \"$a\"; " + QUIET,
        "unread": "echo 'resend soon' >&3",
    }
    cases = "\n".join(f"{name}) {text};;" for name, text in says.items())
    agent.runs(f"case $RQ_PARAM1 in\n{cases}\nesac")
    tokens = {name: host.give(param1=name) for name in says}
    assert agent.once("--slots", "3").returncode == 0
    ends = {end["token"]: end for end in host.said("finish")}
    end = {name: ends[token] for name, token in tokens.items()}
    assert (end["err"]["word"], end["err"]["text"]) == ("err", "broken")
    assert (end["later"]["delay"], end["later"]["waits_for"]) == (9.0, "db")
    assert (end["none"]["word"], end["none"]["exit"]) == (None, 3)
    assert end["none"]["printed"] == "last words"
    assert end["copy"]["dups"] == [{"delay": 5.0, "dest": "other"}]
    assert host.logs[tokens["copy"]].startswith(b"ok ")
    assert end["unread"]["word"] == "err"
    assert end["unread"]["unreadable"]


def test_no_more_is_leased_than_the_slots_can_take(host, agent):
    gate = agent.path / "gate"
    agent.runs(f"while [ ! -e {gate} ]; do sleep 0.02; done; {QUIET}")
    for _ in range(4):
        host.give()
    with agent.running("--slots", "2"):
        wait_until(lambda: len(host.said("start")) >= 2)
        wait_until(lambda: host.asked and host.asked[-1]["count"] == 0)
        assert len(host.said("start")) == 2
        gate.touch()
        wait_until(lambda: len(host.ends()) == 4)


def test_results_are_handed_in_with_done(host, agent):
    agent.runs("mkdir results; echo 42 > results/answer.txt; " + QUIET)
    host.give()
    assert agent.once().returncode == 0
    digest = hashlib.sha256(b"42\n").hexdigest()
    assert host.said("finish")[0]["files"] == {"answer.txt": digest}
    assert host.files == {"answer.txt": b"42\n"}


def test_a_result_that_leads_elsewhere_is_not_handed_in(host, agent):
    agent.runs("mkdir results; ln -s /etc/passwd results/answer; " + QUIET)
    host.give()
    assert agent.once().returncode == 0
    assert host.ends() == ["err"]
    assert host.files == {}


def test_long_lived_workers_take_message_after_message(host, agent):
    agent.runs(
        'echo ready >&3\nwhile read -r line <&4; do echo "$$ $line"; '
        "echo 'done' >&3; echo ready >&3; done",
        '{"worker": "persistent"}',
    )
    tokens = [host.give(param1=str(number)) for number in range(20)]
    ended = agent.once("--slots", "2")
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == ["done"] * 20
    pids = {host.logs[token].split()[0] for token in tokens}
    assert len(pids) <= 2
    assert b'"RQ_PARAM1":"7"' in host.logs[tokens[7]]


# ---- ends


def sleeping(agent, host):
    """Give a message to a script that lasts."""
    host.give()
    agent.runs(f"sleep 1000 & echo $! > {agent.path}/pid; wait; {QUIET}")


def pid_of(agent):
    return int(wait_until((agent.path / "pid").read_text))


def test_a_stopped_agent_gives_back_what_does_not_end(host, agent):
    sleeping(agent, host)
    with agent.running("--grace", "0.2"):
        pid = pid_of(agent)
    assert not lives(pid)
    assert host.said("finish") == []
    assert [given["why"] for given in host.said("release")] == ["its worker stops"]


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
    assert [word for word, _ in host.words][:2] in (
        ["start", "renew"],
        ["renew", "start"],
    )
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


# ---- what no host may make an agent do


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "a/b", "..", ""])
def test_a_hostile_name_is_given_back(host, agent, name):
    agent.runs(QUIET)
    host.give(files={"a": b"x"})
    host.waiting[0]["attachments"][0]["name"] = name
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == []
    assert len(host.said("release")) == 1


def test_attachments_that_are_not_what_was_said_are_given_back(host, agent):
    agent.runs(QUIET)
    host.give(files={"a": b"x"})
    host.waiting[0]["attachments"][0]["sha256"] = "0" * 64
    host.give(files={"huge": b"x"})
    host.waiting[1]["attachments"][0]["size"] = 2**61
    assert agent.once().returncode == 0
    assert host.ends() == []
    whys = sorted(given["why"] for given in host.said("release"))
    assert "did not arrive" in whys[0]
    assert "no room" in whys[1]


def test_what_the_disk_here_has_no_room_for_is_given_back(host, agent):
    """As on a full disk: the host is not to blame, and its lease is not renewed for ever."""
    agent.runs(QUIET)
    host.give(files={"large": b"x" * 200_000})
    host.give(param1="x" * 100_000)
    ended = agent.once(file_limit=50_000)
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == []
    whys = [given["why"] for given in host.said("release")]
    assert len(whys) == 2
    assert all("its worker cannot lay it out: File too large" in why for why in whys)


def test_an_attachment_that_is_longer_than_was_said_is_given_back(host, agent):
    agent.runs(QUIET)
    host.give(files={"a": b"xyz"})
    host.waiting[0]["attachments"][0]["size"] = 2
    assert agent.once().returncode == 0
    [given] = host.said("release")
    assert "larger than it may be" in given["why"]


@pytest.mark.parametrize(
    "answer",
    [{"leases": "x"}, {"leases": [{"token": "../x"}]}, [], b"no JSON", {}],
    ids=repr,
)
def test_an_answer_that_is_none_ends_the_agent_with_a_sentence(host, agent, answer):
    agent.runs(QUIET)
    host.instead["leases"] = lambda asked: (200, answer)
    ended = agent.once()
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("rq: ")


def tar_of(*members):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def member(name, kind=tarfile.REGTYPE, mode=0o755, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, target
    return info


def test_a_shared_script_is_fetched_and_run(host, agent):
    text = b'#!/bin/sh\n. "$(dirname "$0")/lib/more"\n'
    host.script = tar_of(
        (member("run"), text), (member("lib/more", mode=0o644), QUIET.encode())
    )
    host.give()
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == ["done"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil"),
        member("/evil"),
        member("x", tarfile.SYMTYPE, target="/etc"),
        member("x", tarfile.LNKTYPE, target="/etc/passwd"),
        member("x", tarfile.FIFOTYPE),
        member("x", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} {info.type!r}",
)
def test_a_hostile_script_is_not_laid_out(host, agent, bad):
    host.script = tar_of((member("run"), b"#!/bin/sh\n"), (bad, b""))
    host.give()
    ended = agent.once()
    assert ended.returncode == 2, ended.stderr
    assert "the queue's script holds" in ended.stderr
    assert "Traceback" not in ended.stderr


# ---- who asks


def test_a_token_comes_from_a_file_that_nobody_else_reads(host, agent, tmp_path):
    agent.runs(QUIET)
    secret = tmp_path / "token"
    secret.write_text("rq_secret\n")
    secret.chmod(0o644)
    ended = agent.once("--token-file", str(secret))
    assert (ended.returncode, "chmod 600" in ended.stderr) == (1, True)
    secret.chmod(0o600)
    assert agent.once("--token-file", str(secret)).returncode == 0


def test_a_refused_login_is_said_in_a_sentence(host, agent):
    agent.runs(QUIET)
    host.instead["leases"] = lambda asked: (401, {"detail": "a token is needed"})
    ended = agent.once()
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1] == "rq: a token is needed"
