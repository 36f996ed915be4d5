"""A queue that stands still says so, and why; one that is at work or at rest does not."""

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process

DONE = "#!/bin/sh\necho done >&3\n"
SILENT = "#!/bin/sh\nexec sleep 1000\n"
LATER = "#!/bin/sh\necho 'later 600@far.example:3333 it does not answer' >&3\n"
GATE = "#!/bin/sh\nwhile [ ! -e $RQ_PARAM1 ]; do sleep 0.05; done\necho done >&3\n"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setenv("TEST_PATIENCE", "0.2")


def stalled(queue):
    """Return what holds it up and the sentence, once there is one."""
    detail = wait_until(lambda: (d := queue.ok("detail"))["stalled"] and d)
    return detail["stalled_by"], detail["stalled"]


def is_well(queue):
    detail = queue.ok("detail")
    return detail["stalled"] is None and detail["stalled_by"] is None


def test_a_queue_without_slots_says_so_at_once(tmp_path):
    with running_queue(tmp_path, DONE, num_workers=0) as queue:
        assert is_well(queue)
        queue.send(due=4e9)
        assert is_well(queue)
        msg_id = queue.send()
        by, said = stalled(queue)
        assert (by, said) == (
            "slots",
            "messages are due, and num_workers is 0: nothing runs",
        )
        (tmp_path / "config/t.pause").touch()
        queue.ask("wake")
        wait_until(lambda: is_well(queue))  # somebody wants it so
        (tmp_path / "config/t.pause").unlink()
        queue.configure(num_workers=1)
        queue.ask("wake")
        queue.ended(msg_id)
        assert is_well(queue)


def test_a_queue_whose_workers_are_elsewhere_says_that_none_is_there(
    tmp_path, impatient
):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        assert is_well(queue)
        queue.send()
        by, said = stalled(queue)
        assert by == "workers"
        assert "no worker elsewhere has asked for messages since the queue" in said
        assert (
            f"rq work {queue.ok('lease', {'count': 0})['base_url']}q/t --script" in said
        )
        assert is_well(queue)  # one has asked
        assert queue.ok("detail")["elsewhere"]["workers"] == 1


def test_a_worker_that_never_says_ready_holds_up_what_is_due(tmp_path, impatient):
    settings = {"worker": "persistent", "num_workers": 2}
    with running_queue(tmp_path, SILENT, **settings) as queue:
        queue.send()
        by, said = stalled(queue)
        assert by == "start"
        assert "slots are free, and nothing has started for" in said
        assert "No worker is ready" in said


def test_all_wait_for_a_host_that_does_not_answer(tmp_path, impatient):
    with running_queue(tmp_path, LATER) as queue:
        for _ in range(3):
            queue.send()
        by, said = stalled(queue)
        assert by == "outside"
        assert "wait for far.example:3333; far.example:3333 is tried again in" in said


def test_a_queue_whose_slots_are_all_at_work_does_not_stand_still(tmp_path, impatient):
    gate = tmp_path / "gate"
    with running_queue(tmp_path, GATE, num_workers=1) as queue:
        first, second = (queue.send(param1=str(gate)) for _ in range(2))
        queue.until(first, "run")
        wait_until(lambda: queue.ok("detail")["oldest_due_age"] > 0.5)
        assert is_well(queue)
        gate.touch()
        assert queue.ended(second)["state"] == "done"
        assert is_well(queue)


def test_a_message_that_waits_for_an_equal_one_does_not_stand_still(
    tmp_path, impatient
):
    gate = tmp_path / "gate"
    settings = {"num_workers": 4, "blocking_params": [1]}
    with running_queue(tmp_path, GATE, **settings) as queue:
        first, second = (queue.send(param1=str(gate)) for _ in range(2))
        queue.until(first, "run")
        wait_until(lambda: queue.ok("detail")["oldest_due_age"] > 0.5)
        assert is_well(queue)
        gate.touch()
        assert queue.ended(second)["state"] == "done"


def test_a_batch_that_still_gathers_does_not_stand_still(tmp_path, impatient):
    with running_queue(tmp_path, DONE, batch={"max": 5, "wait": 3600}) as queue:
        queue.send()
        wait_until(lambda: (queue.ok("detail")["oldest_due_age"] or 0) > 0.5)
        assert is_well(queue)


def test_the_counters_of_the_hour_outlive_a_restart(tmp_path):
    with running_queue(tmp_path, DONE) as queue:
        queue.run()
        assert sum(queue.ok("detail")["series"]["done"]) == 1
        queue.restart()
        series = queue.ok("detail")["series"]
        assert (sum(series["done"]), sum(series["accepted"])) == (1, 1)
        queue.run()
        assert sum(queue.ok("detail")["series"]["done"]) == 2
