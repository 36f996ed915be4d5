"""Batches that long-lived workers take, one after the other, in one process."""

from __future__ import annotations

import os
import sys

import pytest
from harness.kills import site_at
from harness.processes import lives
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process

PATIENCE = 60.0
LONG = 3600
# Tells of each batch, then does as the test says; `ids` are its messages.
WORKER = f"""#!{sys.executable}
import json, os, time

root = os.environ["RQ_ROOT"]
pipe, hear = open(3, "w", buffering=1), open(4)


def say(*lines):
    pipe.write("".join(f"{{line}}\\n" for line in lines))


def hold(name="go"):
    while not os.path.exists(f"{{root}}/{{name}}"):
        time.sleep(0.02)


say("ready")
if os.path.exists(f"{{root}}/deaf"):
    hold("deaf-end")
    os._exit(0)
for line in hear:
    with open(json.loads(line)["RQ_BATCH_FILE"]) as file:
        batch = json.load(file)
    ids = [message["msg_id"] for message in batch["messages"]]
    with open(f"{{root}}/ran", "a") as file:
        file.write(f"{{os.getpid()}} {{' '.join(ids)}}\\n")
    print("this is", batch["batch_id"], flush=True)
    with open(f"{{root}}/act") as file:
        exec(file.read())
    say("ready")
"""


class Batches:
    """A queue whose workers take batches, and what they have told."""

    def __init__(self, queue):
        self.queue, self.place = queue, queue.root.path

    def act(self, text):
        (self.place / "act.new").write_text(text)
        (self.place / "act.new").rename(self.place / "act")

    def touch(self, name):
        (self.place / name).touch()

    def ran(self):
        """Return the batches that were taken: the process, and the messages."""
        try:
            text = (self.place / "ran").read_text()
        except FileNotFoundError:
            return []
        words = [line.split() for line in text.splitlines()]
        return [(int(first), ids) for first, *ids in words]

    def until_ran(self, number):
        return wait_until(lambda: len(self.ran()) >= number and self.ran(), PATIENCE)

    def send(self, number):
        return [self.queue.send() for _ in range(number)]

    def all_until(self, ids, state):
        return [self.queue.until(one, state, seconds=PATIENCE) for one in ids]

    def log(self, msg_id):
        [path] = self.place.glob(f"queue/*/*/**/{msg_id}/job/stdio.log")
        return path.read_text()


@pytest.fixture
def make(tmp_path):
    opened = []

    def make(**batch):
        settings = {"worker": "persistent", "num_workers": 1, "batch": batch}
        opened.append(running_queue(tmp_path, WORKER, **settings))
        made = Batches(opened[0].__enter__())
        made.act("say('done fine')")
        return made

    yield make
    for name in ("go", "deaf-end"):
        (tmp_path / name).touch()
    opened[0].__exit__(None, None, None)


def test_one_process_takes_batch_after_batch_and_each_has_its_own_log(make):
    batches = make(max=2, wait=LONG)
    ids = batches.send(6)
    for shown in batches.all_until(ids, "done"):
        assert shown["status"] == "done - fine"
        assert shown["count"] == 0
    taken = batches.ran()
    assert [members for _, members in taken] == [ids[:2], ids[2:4], ids[4:]]
    assert len({pid for pid, _ in taken}) == 1
    for _, members in taken:
        for msg_id in members:
            text = batches.log(msg_id)
            assert text.count("this is ") == 1
            assert f"this is {members[0]}.1\n" in text
            assert "RQ END - exit 0" in text
    wait_until(lambda: not os.listdir(batches.place / "queue/t/batch"), PATIENCE)


def test_a_worker_is_there_before_its_first_batch_is(make):
    """It starts while the messages gather: a warm start costs them nothing."""
    batches = make(max=2, wait=LONG)
    first = batches.send(1)

    def phases():
        return [worker["phase"] for worker in batches.queue.ok("detail")["workers"]]

    wait_until(lambda: phases() == ["free"], PATIENCE)
    assert batches.ran() == []
    batches.all_until([*first, *batches.send(1)], "done")


def test_what_is_said_of_single_ones_stands(make):
    batches = make(max=3, wait=LONG)
    batches.act("say(f'msg {ids[0]} err bad', f'msg {ids[1]} resend 0-later', 'done')")
    ids = batches.send(3)
    assert batches.all_until(ids[:1], "err")[0]["status"] == "err - bad"
    batches.all_until(ids[2:], "done")
    wait_until(lambda: batches.queue.get(ids[1])["count"] == 1, PATIENCE)
    batches.act("say('done')")
    more = batches.send(2)
    batches.all_until([ids[1], *more], "done")
    assert len({pid for pid, _ in batches.ran()}) == 1


def test_one_that_says_nothing_of_the_whole_gets_no_other_batch(make):
    batches = make(max=2, wait=LONG)
    batches.act("say(*(f'msg {one} done' for one in ids))")
    ids = batches.send(4)
    batches.all_until(ids, "done")
    assert len({pid for pid, _ in batches.ran()}) == 2


def test_a_worker_that_dies_costs_its_batch_one_attempt(make):
    batches = make(max=2, wait=LONG)
    batches.act("say(f'msg {ids[0]} done early')\nhold()\nos._exit(3)")
    ids = batches.send(2)
    batches.all_until(ids[:1], "done")
    batches.act("say('done')")
    batches.touch("go")
    wait_until(lambda: batches.queue.get(ids[1])["count"] == 1, PATIENCE)
    batches.queue.ok("run_message", {"msg_id": ids[1]})
    batches.all_until(ids[1:], "done")
    assert len({pid for pid, _ in batches.until_ran(2)}) == 2


def test_a_worker_that_ends_before_it_has_read_costs_nothing(make):
    batches = make(max=2, wait=LONG)
    batches.touch("deaf")
    ids = batches.send(2)
    wait_until(lambda: batches.queue.state(ids[0]) == "run", PATIENCE)
    (batches.place / "deaf").unlink()
    batches.touch("deaf-end")
    for shown in batches.all_until(ids, "done"):
        assert shown["count"] == 0


def test_a_stop_that_cuts_it_short_counts_nothing(make):
    batches = make(max=2, wait=LONG)
    batches.act("say(f'msg {ids[0]} done early')\nhold()\nsay('done')")
    ids = batches.send(2)
    batches.all_until(ids[:1], "done")
    batches.queue.restart()
    [(pid, _)] = batches.ran()
    assert not lives(pid)
    shown = batches.queue.get(ids[1])
    assert (shown["state"], shown["count"]) == ("que", 0)
    assert shown["result"]["cause"] == "stop"


def test_a_batch_whose_script_changes_meanwhile_ends_and_the_next_has_the_new_one(make):
    batches = make(max=1, wait=LONG)
    batches.act("hold()\nsay('done old')")
    ids = batches.send(1)
    batches.until_ran(1)
    script = batches.queue.script
    new = script.with_name("new")
    new.write_text(script.read_text().replace("this is", "this is now"))
    new.chmod(0o755)
    new.rename(script)
    batches.touch("go")
    assert batches.all_until(ids, "done")[0]["status"] == "done - old"

    def is_new():
        more = batches.send(1)
        batches.all_until(more, "done")
        return "this is now" in batches.log(more[0])

    wait_until(is_new, PATIENCE)  # the file is looked at once a second
    assert len({pid for pid, _ in batches.ran()}) == 2


def test_a_batch_is_cancelled_whole_and_its_worker_with_it(make):
    batches = make(max=2, wait=LONG)
    batches.act("hold()\nsay('done')")
    ids = batches.send(2)
    [(pid, _)] = batches.until_ran(1)
    batches.queue.ok("cancel_batch", {"msg_id": ids[0]})
    for shown in batches.all_until(ids, "err"):
        assert shown["result"]["cause"] == "cancelled"
    wait_until(lambda: not lives(pid), PATIENCE)
    batches.act("say('done')")
    batches.all_until(batches.send(2), "done")


def test_a_crash_of_the_queue_counts_its_messages_once(tmp_path):
    with site_at(tmp_path / "root") as site:
        place = site.root.path
        (place / "act").write_text("hold()\nsay('done')")
        settings = {"worker": "persistent", "batch": {"max": 2, "wait": LONG}}
        queue = site.queue(script=WORKER, **settings).start()
        ids = [queue.submit() for _ in range(2)]
        wait_until((place / "ran").exists, PATIENCE)
        pid = int((place / "ran").read_text().split()[0])
        queue.kill()
        assert queue.died()
        (place / "act").write_text("say('done')")
        queue.start()
        wait_until(lambda: not lives(pid), PATIENCE)
        wait_until(lambda: queue.state(ids[0]) != "run", PATIENCE)
        if queue.state(ids[0]) == "que":
            queue.ask("run_message", {"msg_id": ids[0]})  # if it has not begun yet
        for shown in [queue.until(one, "done", PATIENCE) for one in ids]:
            assert (shown["count"], shown["attempt"]) == (1, 2)
