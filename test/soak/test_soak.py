"""A mixed load with faults, for as long as one likes: nothing grows, nothing is lost.

    RQ_SOAK_SECONDS=14400 ./test/run_tests.sh soak

Half a minute every day, at most ten in CI. `steady` and all helpers live through the
whole run, and are looked at when they have warmed up and at the end: descriptors, threads,
watches, memory, files, zombies. `victim` is killed, stopped and started while it works.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from harness.extent import FULL
from harness.queues import short
from harness.sizes import Size, size_of
from harness.supervisor import annoy
from harness.waiting import wait_until
from harness.web_server import BROWSER, served

from rq.errors import OutcomeUnknown, RQError, Unreachable

pytestmark = pytest.mark.system

USUAL = "600" if FULL else "30"
SECONDS = float(os.environ.get("RQ_SOAK_SECONDS", USUAL))
QUEUES = ("steady", "stays", "victim")
RAN = 'echo "$RQ_MSG_ID" >> "$RQ_ROOT/ran"\n'
SCRIPT = f"""{RAN}
echo "run at it" >&3
case "$RQ_PARAM1" in
fail) echo "err by design" >&3; exit 0 ;;
resend) [ "$RQ_COUNT" -ge 1 ] || {{ echo "resend 0-again" >&3; exit 0; }} ;;
slow) sleep 0.2 ;;
leave) sleep 300 & ;;
talk) yes "a line of output" | head -n 2000 ;;
esac
echo "done ok" >&3"""
STAYS = """import os, sys
sys.path.insert(0, os.environ["RQ_SHARE"])
import rq_worker
for message in rq_worker.messages():
    with open(os.environ["RQ_ROOT"] + "/ran", "a") as file:
        file.write(message.msg_id + "\\n")
    message.done("ok")
"""
ACTS = ["ok"] * 6 + ["slow", "fail", "resend", "leave", "talk"]


@dataclass
class Soak:
    """One run: who sends, who breaks, and what was promised."""

    web: object
    seed: int
    promised: dict[str, tuple[str, str]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)  # with a script that was killed
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)
    done: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: list[threading.Thread] = field(default_factory=list)

    @property
    def daemon(self):
        return self.web.daemon

    def begin(self, act: Callable[[random.Random], None], pause: float) -> None:
        """Do `act` again and again beside the others."""
        name = act.__name__
        source = random.Random(f"{self.seed}{name}")

        def run() -> None:
            while not self.enough.wait(source.uniform(0, 2 * pause)):
                try:
                    act(source)
                    self.done[name] = self.done.get(name, 0) + 1
                except (
                    OutcomeUnknown,
                    Unreachable,
                    OSError,
                    http.client.HTTPException,
                ):
                    pass  # somebody was killed just then
                except (RQError, AssertionError, ValueError, KeyError) as error:
                    self.wrong.append(f"{name}: {error!r}")

        thread = threading.Thread(target=run, name=name)
        thread.start()
        self.threads.append(thread)

    def run(self, seconds: float) -> None:
        """Let all happen at once for so long, then let it come to rest."""
        self.enough.clear()
        for act, pause in (
            *[(self.send, 0.04), (self.post, 0.08), (self.attach, 0.5)],
            *[(self.look, 0.5), (self.expire, 3.0), (self.seal, 7.0)],
            *[(self.renew, 5.0), (self.annoy, 3.0)],
            *[(self.kill_worker, 1.0), (self.kill_victim, 5.0)],
        ):
            self.begin(act, pause)
        self.enough.wait(seconds)
        self.end()

    def end(self) -> None:
        self.enough.set()
        for one in self.threads:
            one.join(90)
        self.threads.clear()

    # ---- load

    def accepted(self, queue: str, reply: list[str], act: str) -> None:
        if reply[0] == "ok":
            with self.lock:
                self.promised[short(reply[1])] = (queue, act)

    def send(self, source: random.Random) -> None:
        queue, act = source.choice(QUEUES), source.choice(ACTS)
        asked = {"dest": queue, "param1": act, "max_count": 10**6}
        reply = self.daemon.ask_queue(queue, "create_message", asked)
        self.accepted(queue, reply, act)

    def post(self, source: random.Random) -> None:
        queue, act = source.choice(QUEUES), source.choice(ACTS)
        mesg = json.dumps({"dest": queue, "param1": act, "max_count": 10**6})
        answer = self.web.post(f"/q/{queue}/new_message", {"mesg": mesg})
        assert answer.status != 500, answer
        if answer.status == 200:
            self.accepted(queue, answer.json, act)

    def attach(self, source: random.Random) -> None:
        msg_id = self.web.send("steady", _method="prep", param1="ok")
        where = f"/q/steady/{msg_id}"
        data = {"filedata": ("a.bin", source.randbytes(50_000))}
        sent = self.web.multipart(f"{where}/attach/new", {"x_format": "json"}, data)
        assert sent.json[0] == "ok", sent
        done = self.web.post(where, {"_method": "commit", "x_format": "json"})
        assert done.status != 500, done
        if done.status == 200 and done.json[0] == "ok":
            with self.lock:
                self.promised[msg_id] = ("steady", "ok")

    def look(self, source: random.Random) -> None:
        path = source.choice(["/", "/q/steady", "/system", "/timers", "/q.json"])
        assert self.web.get(path, Accept=BROWSER).status == 200, path

    # ---- what a queue that lives for years needs

    def expire(self, _source: random.Random) -> None:
        for queue in QUEUES:
            self.daemon.ask_queue(queue, "ack_errs", {})
            for state in ("done", "dismissed"):
                asked = {"state": state, "before": time.time() + 1}
                while self.daemon.ask_queue(queue, "expire", asked)[1]["more"]:
                    pass

    def seal(self, _source: random.Random) -> None:
        self.daemon.ask_queue("steady", "seal")

    # ---- faults

    def kill_worker(self, source: random.Random) -> None:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        scripts = {pid: self.script_of(pid) for pid in pids}
        found = [pid for pid, msg_id in scripts.items() if msg_id]
        if found:
            pid = source.choice(found)
            self.touched.add(scripts[pid])
            os.kill(pid, signal.SIGKILL)

    def script_of(self, pid: int) -> str:
        """Return the message of `victim` that a process works on, "" for none."""
        words = variables(pid)
        ours = words.get("RQ_ROOT") == str(self.daemon.root.path)
        mine = ours and words.get("RQ_DEST_QUEUE") == "victim"
        return words.get("RQ_MSG_ID", "") if mine else ""

    def kill_victim(self, source: random.Random) -> None:
        pid = self.daemon.child("victim")["pid"]
        if not pid:
            return
        if source.random() < 0.5:
            os.kill(pid, signal.SIGSTOP)
            self.enough.wait(0.5)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, signal.SIGKILL)

    def annoy(self, source: random.Random) -> None:
        for line in annoy(self.daemon.root.queue("steady").socket):
            line.close()

    def renew(self, _source: random.Random) -> None:
        path = self.daemon.root.queue("steady").config
        new = path.with_name("config.json.new")
        new.write_bytes(path.read_bytes())
        new.rename(path)

    # ---- looking

    def minded(self) -> dict[str, int]:
        """Return the processes that live through all of it."""
        found = {one["name"]: one["pid"] for one in self.daemon.children()}
        del found["victim"]
        serving = children_of(found["web"])
        found |= {f"web {at}": pid for at, pid in enumerate(serving)}
        return {**found, "supervisor": self.daemon.process.pid}

    def rest(self) -> dict[str, Size]:
        """Wait until nothing is at work and nothing is kept; return what all hold."""
        wait_until(self.serves, 120)
        wait_until(self.idle, 600)
        self.expire(random.Random(0))
        for queue in QUEUES:
            assert self.daemon.ask_queue(queue, "check") == ["ok", {"problems": []}]
        return {name: size_of(pid) for name, pid in self.minded().items()}

    def serves(self) -> bool:
        """Whether `victim` is up; nobody here wants to wait for its back-off."""
        state = self.daemon.child("victim")["state"]
        if state in ("BACKOFF", "FATAL"):
            self.daemon.ask("restart_queue", "victim")
        return state == "UP"

    def idle(self) -> bool:
        counts = [self.daemon.ask_queue(one, "num_messages") for one in QUEUES]
        return not any(one["que"] or one["run"] for one in counts)

    def files(self) -> int:
        """Return how many files and directories messages and uploads take; the empty
        directory of a minute stays for an hour."""
        root = self.daemon.root
        places = [root.queue(one).path / state for one in QUEUES for state in STATES]
        number = 0
        for place in [*places, root.uploads]:
            # What is removed meanwhile is passed over.
            for path, directories, files in os.walk(place):
                is_inside, is_full = Path(path) != place, bool(directories or files)
                number += len(files) + (is_inside and is_full)
        return number


STATES = ("prep", "que", "run", "done", "err", "gone", "new", "relayed", "batch")


def children_of(pid: int) -> list[int]:
    return [
        int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def variables(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
        return dict(one.split("=", 1) for one in text.split("\0") if "=" in one)
    return {}


@pytest.fixture
def soak(tmp_path):
    with served(tmp_path / "root", forked=False) as web:
        python = f"exec {sys.executable} -I -c '{STAYS}'"
        web.queue(SCRIPT, "steady", num_workers=3)
        web.queue(SCRIPT, "victim", num_workers=3)
        web.queue(
            python, "stays", num_workers=2, worker="persistent", worker_messages=50
        )
        for one in web.daemon.children():
            web.daemon.until_up(one["name"])
        soak = Soak(web, int(os.environ.get("RQ_TEST_SEED", random.randrange(10**6))))
        yield soak
        soak.end()


def test_a_mixed_load_with_faults_makes_nothing_grow(soak, capsys):
    pids = soak.minded()
    soak.run(max(10.0, SECONDS * 0.3))
    before, files = soak.rest(), soak.files()
    soak.run(SECONDS * 0.7)
    after = soak.rest()
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {soak.seed}: {len(soak.promised)} accepted; {soak.done}\n"
        )
        for name in before:
            sys.stdout.write(f"  {name}: {before[name]} → {after.get(name)}\n")
    assert soak.wrong == []
    assert soak.minded() == pids
    prove_promises(soak)
    # What was asked last may still be held, and be on its way out, for a moment.
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not grown(pids, before), 60)
    assert grown(pids, before) == {}
    wait_until(lambda: soak.files() <= files + 20, 60)
    wait_until(lambda: zombies(soak) == [], 30)
    for log in soak.daemon.root.log.glob("*.log"):
        text = log.read_text(errors="replace")
        assert "Traceback" not in text, f"{log}: {text[-3000:]}"


def grown(
    pids: dict[str, int], before: dict[str, Size]
) -> dict[str, tuple[Size, Size]]:
    """Return the processes that hold more than before, with what they held and hold."""
    now = {name: size_of(pid) for name, pid in pids.items()}
    return {
        name: (before[name], now[name])
        for name in before
        if not now[name].within(before[name])
    }


def prove_promises(soak: Soak) -> None:
    """All that was accepted has run, or its script was killed before it could say so;
    it has been removed since."""
    ran = set((soak.daemon.root.path / "ran").read_text().split()) | soak.touched
    lost = [one for one in soak.promised if one not in ran]
    assert lost == [], [(one, soak.promised[one]) for one in lost]


def zombies(soak: Soak) -> list[int]:
    """Return children that nobody has reaped."""
    parents = set(soak.daemon.processes())
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (
                Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
            )
            if words[0] == "Z" and int(words[1]) in parents:
                found.append(int(name))
    return found
