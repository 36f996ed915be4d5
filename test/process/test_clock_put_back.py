"""A clock that is put back by a day: what was due before is due, in whichever queue it
goes on."""

import pytest
from harness.owed import ON, Owing
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until

pytestmark = pytest.mark.process

DAY = 86400
DONE = "echo done >&3"
TAKER = "#!/bin/sh\necho done got it >&3\n"


@pytest.fixture
def a(tmp_path):
    with kept(Owing(tmp_path, "a", "obey")) as queue:
        yield queue


@pytest.fixture
def b(tmp_path, a):
    """A queue that takes what goes on there, by the same clock; it does not run yet."""
    queue = RunningQueue(tmp_path, "b", TAKER)
    queue.env = a.env
    try:
        yield queue
        queue.close()
    finally:
        queue.kill()


def arrived(b):
    """Wait until one message has run there."""
    b.start()
    wait_until(lambda: b.ok("list", {"state": "done"}))


def test_what_waits_and_is_moved_runs_there(a, b):
    """At once, before its queue has noticed that the clock was set."""
    msg_id = a.send(due=4e9, param1=DONE)
    waits = a.send(after=[msg_id])
    a.ahead(-DAY)
    a.ok("move_message", {"msg_id": waits, "to": "b", "who": "ann"})
    a.ok("run_message", {"msg_id": msg_id})
    arrived(b)


def test_what_was_handed_on_before_runs_there(a, b):
    assert a.run(param1=ON)["state"] == "done"
    a.ahead(-DAY)
    arrived(b)


def test_a_moment_that_a_sender_asked_for_is_kept(a, b):
    msg_id = a.send(due=4e9, param1=DONE)
    a.ahead(-DAY)
    a.ok("move_message", {"msg_id": msg_id, "to": "b", "who": "ann"})
    b.start()
    [moved] = wait_until(lambda: b.ok("list", {"state": "que"}))
    assert moved["due"] == 4e9


def test_a_clone_of_what_has_run_runs(a):
    msg_id = a.run(param1=DONE)["msg_id"]
    a.ahead(-DAY)
    copy = a.ok("clone_message", {"msg_id": msg_id}).rpartition("/")[2]
    assert a.ended(copy)["state"] == "done"
