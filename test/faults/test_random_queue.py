"""One queue, asked everything and killed anywhere, against a model of what was promised.

Checkpoints come every fraction of a second here, so that crashes fall into them too.
"""

import os
import random
import sys
import time

import pytest
from harness.kills import site_at
from harness.queues import short
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown, Unreachable

pytestmark = pytest.mark.process

ACTS = {
    "fail": "echo 'err by design' >&3; exit 0",
    "resend": '[ "$RQ_COUNT" -ge 2 ] || { echo "resend 0-again" >&3; exit 0; }',
    "slow": "sleep 0.1",
    "linger": "( setsid sleep 300 & )",
    "later": ":",
}
POINTS = [
    *["journal:before-write", "journal:written", "journal:before-sync"],
    *["journal:after-sync", "make:before-msg", "write:before-rename"],
    *["write:after-rename", "move:before-rename", "move:after-rename"],
    *["checkpoint:before-syncfs", "checkpoint:after-syncfs", "durable:before-rename"],
    *["durable:after-rename", "segment:before-link", "seal:cut"],
    *["index:before-rename", "index:after-rename", "stop:before-checkpoint"],
    *["recovery:before-retire", ""],
]
LATER = 4e9


class Model:
    """What the client knows of each message: what it asked, and what may have become."""

    def __init__(self, queue, seed):
        self.queue = queue
        self.random = random.Random(seed)
        self.acts = {}  # promised id: act
        self.gone = set()  # answered: removed
        self.perhaps_gone = set()  # asked to remove, no answer
        self.keys = {}  # key: id, or None while nobody knows
        self.kills = self.asked = 0

    # ---- asking

    def ask_something(self):
        name = self.random.choices(
            [
                "submit",
                "keyed",
                "prepared",
                "remove",
                "retry",
                "run_now",
                "seal",
                "stop",
            ],
            [40, 15, 10, 12, 8, 8, 3, 1],
        )[0]
        self.asked += 1
        try:
            getattr(self, name)()
        except (OutcomeUnknown, Unreachable):
            self.start_again()

    def submit(self):
        act = self.random.choice([*ACTS, "", "", ""])
        self.acts[self.queue.submit(act, **due(act))] = act

    def keyed(self):
        """As a sender that keeps asking with its key until it knows."""
        unknown = [key for key, msg_id in self.keys.items() if msg_id is None]
        key = unknown[0] if unknown else f"cafe/{len(self.keys)}/0"
        self.keys.setdefault(key, None)
        asked = {"dest": "t", "_key": key, "max_count": 10**6}
        self.keys[key] = short(self.queue.ok("create_message", asked))
        self.acts[self.keys[key]] = ""

    def prepared(self):
        letter = str(self.queue.site.root.path / "letter")
        msg_id = self.queue.prepare(max_count=10**6)
        self.queue.ok("attach_message", {"msg_id": msg_id, "pathname": letter})
        self.queue.ok("commit_message", {"msg_id": msg_id})
        self.acts[msg_id] = ""

    def remove(self):
        if not (msg_id := self.some_message()):
            return
        before = msg_id in self.perhaps_gone
        self.perhaps_gone.add(msg_id)
        answer = self.queue.ask("delete_message", {"msg_id": msg_id})
        if answer[0] == "ok" or (before and "not found" in answer[1]):
            self.gone.add(msg_id)
        elif not before:
            self.perhaps_gone.discard(msg_id)
            assert "running" in answer[1] or "worked on" in answer[1], answer

    def retry(self):
        if msg_id := self.some_message():
            self.queue.ask("retry_message", {"msg_id": msg_id})

    def run_now(self):
        if msg_id := self.some_message():
            self.queue.ask("run_message", {"msg_id": msg_id})

    def seal(self):
        self.queue.ok("seal")

    def stop(self):
        if self.queue.stop() != 0:
            self.kills += 1
        self.start_again()

    def some_message(self):
        live = [one for one in self.acts if one not in self.gone]
        return self.random.choice(live[-40:]) if live else None

    # ---- dying

    def point(self):
        point = self.random.choice(POINTS)
        return f"{point}#{self.random.randint(1, 6)}" if point else ""

    def start_again(self):
        """Start until it serves, dying on the way now and then."""
        while True:
            if self.queue.process.poll() is None:
                wait_until(lambda: self.queue.process.poll() is not None)
            self.kills += self.queue.process.returncode == -9
            point = self.point() if self.random.random() < 0.4 else ""
            self.queue.start(crash_at=point or "never", TEST_CHECKPOINT_SECONDS="0.15")
            if self.queue.said == "\n":
                return
            assert self.queue.process.wait(60) == -9, self.queue.log()

    def perhaps_kill(self):
        if self.random.random() > 0.08 or self.queue.process.poll() is not None:
            return
        if point := self.point():
            self.queue.arm(point)
        else:
            self.queue.kill()

    # ---- proving

    def prove(self):
        queue = self.queue
        while None in self.keys.values():
            self.keyed()
        wait_until(lambda: idle(queue), 60)
        queue.promised = [one for one in self.acts if one not in self.perhaps_gone]
        queue.prove()
        for msg_id, act in self.acts.items():
            self.prove_one(msg_id, act, queue.places(msg_id))
        assert len(set(self.keys.values())) == len(self.keys)

    def prove_one(self, msg_id, act, places):
        if msg_id in self.gone:
            assert places == [], f"{msg_id} ({act}) came back to {places}"
        elif msg_id in self.perhaps_gone and not places:
            return
        else:
            ends = {"later": ["que", "done"], "fail": ["err"]}.get(act, ["done"])
            assert len(places) == 1, f"{msg_id} ({act}) lies in {places}"
            assert places[0] in ends, f"{msg_id} ({act}) ended in {places}"


def due(act):
    return {"max_count": 10**6, **({"due": LATER} if act == "later" else {})}


def idle(queue):
    """Return whether nothing runs and what waits is due in a hundred years."""
    waiting = queue.ok("list", {"state": "que", "limit": 10_000})
    running = queue.ask("num_messages")["run"]
    return not running and all(one["due"] == LATER for one in waiting)


@pytest.mark.parametrize(
    "seconds", [15, pytest.param(120, marks=pytest.mark.stress)], ids=["short", "long"]
)
def test_a_queue_killed_anywhere_keeps_what_it_promised(tmp_path, capsys, seconds):
    seed = int(os.environ.get("RQ_TEST_SEED", random.randrange(10**6)))
    with site_at(tmp_path / "root") as site:
        for name, text in ACTS.items():
            site.act(name, text)
        (site.root.path / "letter").write_text("dear all\n")
        queue = site.queue(num_workers=3).start(TEST_CHECKPOINT_SECONDS="0.15")
        model = Model(queue, seed)
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                model.perhaps_kill()
                model.ask_something()
            queue.kill()
            queue.start(TEST_CHECKPOINT_SECONDS="0.15")
            model.prove()
        finally:
            with capsys.disabled():
                sys.stdout.write(
                    f"\nseed {seed}: {len(model.acts)} accepted, {model.asked} asked, "
                    f"{model.kills} kills, {len(site.ran('start'))} attempts, "
                    f"{len(model.gone)} removed\n"
                )
