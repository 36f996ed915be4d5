"""Messages that a person holds: they wait, and go on when they are released."""

import json

import pytest
from harness.cli import rq
from harness.owed import Owing
from harness.queues import kept, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
NOTE = """#!/bin/sh
echo "$RQ_MSG_ID" >> "$RQ_ROOT/order"
eval "$RQ_PARAM1"
echo "done" >&3
"""
HOLD = 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done'


def order(queue):
    path = queue.root.path / "order"
    return path.read_text().split() if path.exists() else []


def hold(queue, msg_id, **more):
    return queue.ok("hold_message", {"msg_id": msg_id, "who": "ann", **more})


def release(queue, msg_id):
    return queue.ok("release_message", {"msg_id": msg_id, "who": "bob"})


def pause(queue, wanted=True):
    file = queue.root.pause("t")
    file.touch() if wanted else file.unlink()
    queue.ask("wake")


def test_a_held_message_starts_when_it_is_released(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        pause(queue)
        first, second = queue.send(), queue.send()
        assert hold(queue, first, why="disk swap") == "msg is held"
        pause(queue, False)
        assert queue.ended(second)["state"] == "done"
        message = queue.get(first)
        assert message["state"] == "que"
        assert message["held"]["why"] == "disk swap"
        assert message["held"]["by"].startswith("ann")
        assert message["story"]["why"].startswith("It is held by ann")
        assert message["story"]["why"].endswith(": disk swap.")
        assert message["story"]["todo"] == f"`rq release {first}` lets it go on."
        assert release(queue, first) == "msg is released"
        assert "held" not in queue.ended(first)
        assert order(queue) == [second, first]


def test_hold_and_release_may_be_said_twice(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        msg_id = queue.send(due=4e9)
        assert release(queue, msg_id) == "msg is not held"
        assert hold(queue, msg_id, why="one") == "msg is held"
        assert hold(queue, msg_id, why="two") == "msg is held already"
        assert queue.get(msg_id)["held"]["why"] == "one"
        refused = queue.refused("run_message", {"msg_id": msg_id})
        assert refused == "msg is held: release it first"
        assert release(queue, msg_id) == "msg is released"
        assert "held" not in queue.get(msg_id)


def test_only_what_waits_is_held(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        msg_id = queue.run()["msg_id"]
        for command, word in (
            ("hold_message", "held"),
            ("release_message", "released"),
        ):
            refused = queue.refused(command, {"msg_id": msg_id})
            assert refused == f"only messages that wait can be {word}: msg is in done"
        refused = queue.refused("hold_message", {"msg_id": msg_id, "why": "x" * 501})
        assert refused == "why is not a text of at most 500 characters"


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_it_is_held_after_a_restart(tmp_path, how):
    with running_queue(tmp_path, NOTE) as queue:
        held, freed = (queue.send(hold="disk swap") for _ in range(2))
        release(queue, freed)
        assert queue.ended(freed)["state"] == "done"
        queue.crash() if how == "crash" else queue.stop()
        queue.start()
        other = queue.run()
        assert other["state"] == "done"
        assert queue.get(held)["held"]["why"] == "disk swap"
        release(queue, held)
        assert queue.ended(held)["state"] == "done"


def test_a_message_may_be_sent_held(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        held, said, free = (
            queue.send(hold=h, src="ci") for h in (True, "why not", False)
        )
        assert queue.ended(free)["state"] == "done"
        message = queue.get(held)
        assert (message["held"]["by"], message["held"]["why"]) == ("ci", "")
        assert "hold" not in message
        assert queue.get(said)["held"]["why"] == "why not"
        assert order(queue) == [free]
        refused = queue.refused("create_message", {"dest": "t", "hold": 5})
        assert refused == "hold is 5: say true, or a text that says why"


def test_a_held_rider_waits_alone_and_the_others_go_on(tmp_path):
    with running_queue(tmp_path, NOTE, coalesce_params=[2]) as queue:
        pause(queue)
        leader = queue.send(param1=HOLD, param2="same")
        riders = [queue.send(param1="true", param2="same") for _ in range(3)]
        hold(queue, riders[0])
        pause(queue, False)
        wait_until(lambda: queue.state(leader) == "run")
        hold(queue, riders[1])
        (queue.root.path / "go").touch()
        assert queue.ended(riders[2])["result"]["cause"] == "duplicate"
        assert queue.ended(leader)["state"] == "done"
        assert [queue.state(i) for i in riders[:2]] == ["que", "que"]
        release(queue, riders[0])
        assert queue.ended(riders[0])["state"] == "done"
        assert queue.state(riders[1]) == "que"
        assert order(queue) == [leader, riders[0]]


def test_a_held_message_is_in_no_batch(tmp_path):
    script = """#!/bin/sh
python3 -c '
import json, os
for line in open(os.environ["RQ_BATCH"]):
    print(json.loads(line)["msg_id"], "done", file=open("/dev/fd/3", "w"))
'
"""
    setting = {"max": 2, "wait": 3600}
    with running_queue(tmp_path, script, batch=setting) as queue:
        first = queue.send()
        wait_until(lambda: queue.ask("detail")[1]["gathering"] == 1)
        hold(queue, first)
        second = queue.send()
        wait_until(lambda: queue.ask("detail")[1]["gathering"] == 1)
        assert queue.state(second) == "que"
        release(queue, first)
        wait_until(lambda: queue.state(first) != "que" and queue.state(second) != "que")


def test_the_journal_tells_who_held_and_who_released(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        msg_id = queue.send(due=4e9)
        hold(queue, msg_id, why="disk swap")
        release(queue, msg_id)
        queue.ok("seal")
        lines = [
            json.loads(line)
            for path in sorted((queue.root.queue("t").path / "history").glob("*/*"))
            for line in path.read_bytes().splitlines()
        ]
        changes = [line for line in lines if line["ev"] == "reschedule"]
        assert changes[0]["held"]["why"] == "disk swap"
        assert changes[0]["message"]["held"] == changes[0]["held"]
        assert changes[1]["held"] is None
        assert changes[1]["by"].startswith("bob")
        assert "held" not in changes[1]["message"]


def test_what_was_held_and_released_often_runs_once(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        msg_id = queue.send(due=4e9)
        for _ in range(20):
            hold(queue, msg_id)
            release(queue, msg_id)
        queue.ok("run_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["state"] == "done"
        assert order(queue) == [msg_id]


@pytest.mark.parametrize(
    ("words", "why"), [(["--hold"], ""), (["--hold", "--why", "a freeze"], "a freeze")]
)
def test_a_message_is_sent_held_from_the_command_line(tmp_path, words, why):
    with running_queue(tmp_path, NOTE) as queue:
        done = rq("send", "t", "--id-only", *words, root=queue.root.path)
        assert done.returncode == 0, done.stderr
        msg_id = done.stdout.strip()
        assert queue.get(msg_id)["held"]["why"] == why
        release(queue, msg_id)
        assert queue.ended(msg_id)["state"] == "done"


@pytest.mark.parametrize("waits_for", ["a person", "another message"])
def test_what_is_released_after_the_clock_was_put_back_runs(tmp_path, waits_for):
    """It was due when it came: that the clock shows less now is no moment asked for."""
    queue = Owing(tmp_path, "a", NOTE)
    queue.env["TEST_TICK"] = "0.2"
    with kept(queue):
        first = queue.send(param1=HOLD)
        queue.until(first, "run")
        second = queue.send(**({"after": [first]} if waits_for != "a person" else {}))
        if waits_for == "a person":
            hold(queue, second)
        queue.ahead(-86400)
        wait_until(lambda: "the clock of this machine was set by -" in queue.log())
        (tmp_path / "go").touch()
        queue.ended(first)
        if waits_for == "a person":
            release(queue, second)
        assert queue.ended(second)["state"] == "done"
