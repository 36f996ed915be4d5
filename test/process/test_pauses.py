"""Pauses that say by whom, why and until when; they end by themselves."""

import json
import time

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
NOTE = "#!/bin/sh\ntouch $RQ_ROOT/ran\necho done >&3\n"


def pause(queue, **said):
    queue.root.pause("t").write_text(json.dumps(said))
    queue.ask("wake")


def test_a_queue_goes_on_by_itself_when_its_pause_is_over(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        until = time.time() + 1
        pause(queue, by="ann", why="disk swap", since=time.time(), until=until)
        msg_id = queue.send()
        why = queue.get(msg_id)["story"]["why"]
        assert why.startswith("The queue is paused by ann since ")
        assert why.endswith(" UTC: disk swap.")
        detail = queue.ok("detail")
        assert (detail["status"], detail["paused"]["until"]) == ("PAUSE", until)
        # Nobody asks it meanwhile, and its housekeeping looks every five seconds.
        wait_until((queue.root.path / "ran").exists)
        ended = queue.ended(msg_id)["result"]["finished"]
        assert until <= ended < until + 3
        assert queue.ok("detail")["paused"] is None


def test_a_pause_that_is_over_at_the_start_counts_no_more(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        pause(queue, until=time.time() + 1)
        msg_id = queue.send()
        queue.stop()
        wait_until(lambda: queue.root.pause("t").stat().st_mtime + 1.1 < time.time())
        queue.start()
        assert queue.ended(msg_id)["state"] == "done"


@pytest.mark.slow
def test_the_supervisor_pauses_with_a_reason_and_removes_what_is_over(shared):
    shared.create("q")
    soon = time.time() + 1.5
    said = {"queue": "q", "why": "disk swap", "until": soon, "who": "ann"}
    assert shared.ask("pause_queue", json.dumps(said)) == ["ok", "q"]
    kept = json.loads(shared.root.pause("q").read_text())
    assert kept["why"] == "disk swap"
    assert kept["by"].startswith("ann")
    wait_until(lambda: not shared.root.pause("q").exists(), 10)
    assert time.time() >= soon
    assert shared.ask("pause_queue", "q") == ["ok", "q"]
    assert json.loads(shared.root.pause("q").read_text())["by"]
    assert shared.ask("resume_queue", "q") == ["ok", "q"]
    assert not shared.root.pause("q").exists()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"queue": "q", "until": 5}, "until is over already"),
        ({"queue": "q", "until": "soon"}, "until is not epoch seconds"),
        ({"queue": "q", "why": 5}, "why is not a text"),
        ({"queue": "../q"}, "invalid queue name"),
        ({}, "invalid queue name"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(shared, said, text):
    shared.create("q")
    reply = shared.ask("pause_queue", json.dumps(said))
    assert reply[0] == "fail"
    assert text in reply[1]


def test_one_that_is_not_due_either_is_told_both(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        pause(queue, by="ann")
        due, later = queue.send(), queue.send(due=4e9)
        story = queue.get(later)["story"]
        assert story["why"].startswith("The queue is paused by ann since ")
        assert " UTC. It is due in " in story["why"]
        resume = "`rq queue resume t` lets it go on."
        assert story["todo"].startswith(f"{resume} Then it waits until it is due")
        assert f"`rq run {later}`" in story["todo"]
        assert queue.get(due)["story"]["todo"] == resume
