"""kill -9 of any process of RQ at random, against the client's own list of promises."""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.ports import free_port
from harness.queues import short
from harness.supervisor import Daemon, daemon_on
from harness.waiting import wait_until
from harness.web_server import Client as Web
from harness.web_server import write_config

from rq.errors import OutcomeUnknown, RQError, Unreachable
from rq.spool import check, folders
from rq.words.states import State

pytestmark = [pytest.mark.system, pytest.mark.long]

QUEUES = ("alpha", "beta", "gamma")
# flock exits with 1 when another attempt holds the file; killed itself, with more.
SCRIPT = """#!/bin/sh
exec 8>>"$RQ_ROOT/met/$RQ_DEST_QUEUE.$RQ_MSG_ID"
say() { echo "$1 $RQ_MSG_ID $$" >> "$RQ_ROOT/ran"; }
flock -n 8; [ $? -ne 1 ] || say overlap
say start
case "$RQ_PARAM1" in
fail) echo "err by design" >&3; exit 0 ;;
resend) [ "$RQ_COUNT" -ge 2 ] || { echo "resend 0-again" >&3; exit 0; } ;;
slow) sleep 0.3 ;;
linger) sleep 300 & ( setsid sleep 300 & ) ;;
dup)
	if [ "$RQ_ORIG_MSG_ID" = "$RQ_FULL_MSG_ID" ]; then
		echo "dup 0-X-$RQ_PARAM2" >&3
		read -r word id <&4 && echo "$word $id" >> "$RQ_ROOT/answers"
	fi ;;
esac
say end
echo "done ok" >&3
"""
ACTS = ["ok"] * 8 + ["slow"] * 3 + ["fail", "fail", "resend", "resend", "linger"]
ACTS += ["dup"] * 3
# How often each kind is killed; a worker is whatever else carries the site's tag.
KINDS = {"worker": 8, "rq-que": 8, "rq-mgr": 2, "rq-fork": 1, "rq-scandir": 1}
KINDS |= {"rq-timers": 1, "rq-web": 3}


class Client(threading.Thread):
    """Sends, and keeps what was promised to it."""

    def __init__(self, daemon: Daemon, web: Web, seed: int) -> None:
        super().__init__(daemon=True)
        self.daemon_on = daemon
        self.web = web
        self.random = random.Random(seed)
        self.promised: dict[str, tuple[str, str]] = {}  # id: queue, act
        self.unknown = self.refused = 0
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.is_set():
            self.send_one()
            self.enough.wait(0.02)

    def send_one(self) -> None:
        queue, act = self.random.choice(QUEUES), self.random.choice(ACTS)
        asked = {"dest": queue, "param1": act, "param2": self.random.choice(QUEUES)}
        way = self.over_web if self.random.random() < 0.3 else self.over_socket
        try:
            reply = way(queue, {**asked, "max_count": 10**6})
        except (Unreachable, ConnectionRefusedError):
            self.refused += 1
        except (OutcomeUnknown, OSError, http.client.HTTPException):
            self.unknown += 1
        else:
            if reply[0] == "ok":
                self.promised[short(reply[1])] = (queue, act)
            else:
                self.refused += 1

    def over_socket(self, queue: str, asked: dict[str, object]) -> list[str]:
        reply: list[str] = self.daemon_on.ask_queue(queue, "create_message", asked)
        return reply

    def over_web(self, queue: str, asked: dict[str, object]) -> list[str]:
        answer = self.web.post(f"/q/{queue}/new_message", {"mesg": json.dumps(asked)})
        assert answer.status != 500, answer
        if answer.status != 200:
            raise OutcomeUnknown(answer.text)
        reply: list[str] = answer.json
        return reply


class Killer:
    """Kills processes of one RQ, and remembers whose scripts it killed."""

    def __init__(self, daemon: Daemon, seed: int) -> None:
        self.daemon = daemon
        self.random = random.Random(seed)
        self.kills: collections.Counter[str] = collections.Counter()
        self.touched: set[str] = set()  # messages with a script that was killed

    def kill_one(self) -> None:
        kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
        everyone = [*self.daemon.processes(), *workers(self.daemon)]
        found = [pid for pid in everyone if kind_of(pid) == kind]
        if not found:
            return
        pid = self.random.choice(found)
        if kind == "worker":
            self.touched.add(variable(pid, "RQ_MSG_ID"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[kind] += 1
        if kind == "rq-mgr":
            self.daemon.crash()  # it is reaped here
            self.daemon.start()

    def nudge(self) -> None:
        """Do as an operator does who does not want to wait for a back-off."""
        with contextlib.suppress(RQError, OSError):
            for child in self.daemon.children():
                assert child["state"] != "FATAL", child
                if child["state"] == "BACKOFF" and child["kind"] == "queue":
                    self.daemon.ask("restart_queue", {"name": child["name"]})


def workers(daemon: Daemon) -> list[int]:
    """Return all processes that scripts have become."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if variable(pid, "TEST_TAG") == daemon.tag]


def kind_of(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
    kind = name.split()[0] if name.startswith("rq-") else "worker"
    if kind == "worker" and not variable(pid, "RQ_MSG_ID"):
        return ""
    if kind == "rq-que" and is_of_queue(pid):
        return ""  # it is about to become a script, and nobody can say of which message
    return kind


def is_of_queue(pid: int) -> bool:
    """Return whether a queue's process has started another, or that is not known."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        return Path(f"/proc/{parent}/comm").read_text().startswith("rq-que")
    except OSError:
        return True


def variable(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if one.startswith(name.encode() + b"="):
                return one.decode().partition("=")[2]
    return ""


@pytest.fixture
def web() -> Web:
    return Web(free_port())


@pytest.fixture
def daemon(tmp_path: Path, web: Web) -> Iterator[Daemon]:
    with daemon_on(tmp_path / "root", forked=False) as daemon:
        write_config(daemon.root.path, web.port)
        (daemon.root.path / "met").mkdir()
        for name in QUEUES:
            settings = {
                "num_workers": 4,
                "env_vars": {"TEST_TAG": daemon.tag},
                "nice": 0,
            }
            directory = daemon.define(name, settings)
            (directory / "run").write_text(SCRIPT)
            daemon.link(name, directory)
        daemon.start()
        for name in QUEUES:
            daemon.until_up(name)
        daemon.until_up("web", 60)
        yield daemon
        for pid in workers(daemon):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "seconds",
    [30, pytest.param(150, marks=pytest.mark.stress)],
    ids=["everyday", "long"],
)
def test_random_kills_break_no_promise(daemon, web, capsys, seconds):
    seed = int(os.environ.get("RQ_TEST_SEED", random.randrange(10**6)))
    client, killer = Client(daemon, web, seed), Killer(daemon, seed)
    client.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        killer.kill_one()
        killer.nudge()
        client.enough.wait(killer.random.uniform(0.02, 0.5))
    client.enough.set()
    client.join()
    drain(daemon, killer)
    wait_until(lambda: set(QUEUES) <= set(web.get("/q.json").json), 60)
    for name in QUEUES:
        assert daemon.ask_queue(name, "check") == ["ok", {"problems": []}]
    assert daemon.stop() == 0
    found = places(daemon)
    starts, overlaps = said(daemon, "start"), said(daemon, "overlap")
    with capsys.disabled():
        ends = collections.Counter(found.values())
        sys.stdout.write(
            f"\nseed {seed}: {len(client.promised)} accepted, {client.unknown} unknown, "
            f"{client.refused} refused; kills {dict(killer.kills)}; {starts} attempts; "
            f"{dict(ends)}\n"
        )
    assert overlaps == 0
    for name in QUEUES:
        assert check.check(daemon.root.queue(name)) == []
    prove_promises(client, killer, found)
    prove_copies(daemon, found)


def drain(daemon: Daemon, killer: Killer) -> None:
    """Wait until nothing waits and nothing runs."""

    def idle() -> bool:
        killer.nudge()
        counts = [daemon.ask_queue(name, "num_messages") for name in QUEUES]
        return not any(one["que"] or one["run"] for one in counts)

    wait_until(idle, 240)


def places(daemon: Daemon) -> dict[str, str]:
    """Return {queue/id: state} of all messages; each lies in one place."""
    found: dict[str, str] = {}
    for name in QUEUES:
        for state in State:
            if state in (State.NOWHERE, State.GONE):
                continue
            for msg_id in folders.list_state(daemon.root.queue(name), state):
                message = f"{name}/{msg_id}"
                there = found.get(message)
                assert there is None, f"{message} lies in {there} and in {state}"
                found[message] = str(state)
    return found


def said(daemon: Daemon, word: str) -> int:
    lines = (daemon.root.path / "ran").read_text().splitlines()
    return sum(line.startswith(f"{word} ") for line in lines)


def prove_promises(client: Client, killer: Killer, found: dict[str, str]) -> None:
    assert client.promised
    for msg_id, (queue, act) in client.promised.items():
        assert f"{queue}/{msg_id}" in found, f"{queue}/{msg_id} ({act}) is lost"
        state = found[f"{queue}/{msg_id}"]
        ends = {"err" if act == "fail" else "done"}
        if msg_id in killer.touched:
            ends.add("err")
        assert state in ends, f"{queue}/{msg_id} ({act}) ended in {state}"


def prove_copies(daemon: Daemon, found: dict[str, str]) -> None:
    """What a script was told of its copies is a promise too."""
    answers = daemon.root.path / "answers"
    lines = answers.read_text().splitlines() if answers.exists() else []
    for line in lines:
        word, _, url = line.partition(" ")
        if word == "ok":
            queue, msg_id = url.split("/q/")[1].split("/")
            assert f"{queue}/{msg_id}" in found, f"the copy {url} is lost"
