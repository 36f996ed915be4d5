"""A message whose file cannot be read any more still tells how it has ended."""

import json

import pytest
from harness.queues import RunningQueue
from harness.waiting import wait_until

from rq.spool import folders
from rq.words.states import State

pytestmark = pytest.mark.process

TAKER = "#!/bin/sh\necho done got it >&3\n"
URL = "https://hooks.example/ended"


@pytest.fixture
def pair(tmp_path):
    """A queue whose messages are damaged, and the queue `webhook` of the same root."""
    t = RunningQueue(tmp_path, "t", "obey")
    webhook = RunningQueue(tmp_path, "webhook", TAKER)
    try:
        t.start()
        webhook.start()
        yield t, webhook
        t.close()
        webhook.close()
    finally:
        t.kill()
        webhook.kill()


def send(t, **fields):
    """Send a message that tells how it ended; return its id and its file."""
    msg_id = t.send(post_run_webhook=[URL], src="me", **fields)
    t.ok("check")  # its folder is there
    [path] = t.dir.path.glob(f"*/{msg_id}/msg")
    return msg_id, path


def paused(t, on):
    """Let messages wait, or let them start."""
    flag = t.root.pause("t")
    if on:
        flag.touch()
    else:
        flag.unlink()
    t.ask("wake")
    wait_until(lambda: t.ask("status") == ["PAUSE" if on else "UP"], 60)


def damage(path):
    """Write over a file as a failing disk would."""
    path.chmod(0o640)
    path.write_text('{"dest": "t", "par')


def told(t, webhook):
    """Return the one story that the webhook queue was given."""
    wait_until(lambda: t.ok("detail")["owed"] == 0, 60)
    webhook.ok("check")
    states = (State.QUE, State.RUN, State.DONE)
    # One that moves meanwhile may lie in two of the directories that are listed.
    ids = wait_until(
        lambda: {i for one in states for i in folders.list_state(webhook.dir, one)}, 60
    )
    [message] = [webhook.get(one) for one in ids]
    assert message["param1"] == URL
    return json.loads(message["param2"])


def is_true(story, msg_id):
    assert (story["id"], story["queue"], story["state"]) == (msg_id, "t", "err")
    assert story["status"].startswith("err - msg is not JSON")
    assert (story["param1"], story["src"]) == ("echo done >&3", "me")
    assert story["outcome"]["cause"] == "bad_message"


def test_of_one_that_waited_and_cannot_be_started(pair):
    t, webhook = pair
    paused(t, True)
    msg_id, path = send(t, param1="echo done >&3")
    damage(path)
    paused(t, False)
    assert t.ended(msg_id, 60)["state"] == "err"
    is_true(told(t, webhook), msg_id)


def test_of_one_that_was_damaged_while_the_queue_was_stopped(pair):
    t, webhook = pair
    paused(t, True)
    msg_id, path = send(t, param1="echo done >&3")
    assert t.stop() == 0
    damage(path)
    t.start()
    paused(t, False)
    assert t.ended(msg_id, 60)["state"] == "err"
    is_true(told(t, webhook), msg_id)


def test_of_one_that_ran_when_the_queue_was_killed(pair):
    t, webhook = pair
    hold = t.root.path / "hold"
    hold.touch()
    script = f"while [ -e {hold} ]; do sleep 0.05; done; echo done >&3"
    paused(t, True)
    msg_id, _ = send(t, param1=script)
    t.restart()  # from now on the file alone holds it; else it would be mended
    paused(t, False)
    wait_until(lambda: t.get(msg_id)["result"].get("pid"), 60)
    t.crash()
    damage(t.dir.message(State.RUN, msg_id) / "msg")
    t.start()
    hold.unlink()
    assert t.ended(msg_id, 60)["state"] == "err"
    story = told(t, webhook)
    assert (story["id"], story["state"]) == (msg_id, "err")
    assert story["param1"] == script


def test_of_one_without_a_webhook_nothing_is_told(pair):
    t, webhook = pair
    paused(t, True)
    msg_id = t.send(param1="echo done >&3")
    t.ok("check")
    damage(t.dir.message(State.QUE, msg_id) / "msg")
    paused(t, False)
    assert t.ended(msg_id, 60)["state"] == "err"
    assert t.ok("detail")["owed"] == 0
    assert webhook.ok("detail")["counts"]["que"] == 0
