"""One message whose folder cannot be used: it waits alone, then goes to err, and says why."""

import contextlib
import os

import pytest
from harness.cli import rq
from harness.limits import mounted_on
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until

from rq.words.states import State

pytestmark = pytest.mark.process
LATER = 4e9
BATCH = r"""#!/bin/bash
echo "done all" >&3
"""


@contextlib.contextmanager
def queue_with(root, tries, env=(), **settings):
    """Give a queue that tries `tries` times to use the folder of a message."""
    queue = RunningQueue(root, "t", "obey", num_workers=2, **settings)
    queue.env = {"TEST_FOLDER_TRIES": str(tries), **dict(env)}
    with kept(queue) as queue:
        yield queue


def waits_alone(queue, msg_id):
    """Wait until a message has been tried and waits; the others go on meanwhile."""
    wait_until(lambda: queue.get(msg_id)["result"].get("cause") == "folder")
    for _ in range(3):
        assert queue.run(param1="echo done >&3")["state"] == "done"
    found = queue.get(msg_id)
    assert found["state"] == "que"
    assert "its own folder cannot be used" in found["story"]["what"]
    return found


def in_que(queue, **fields):
    """Send a message for later; return it with its folder, which is there."""
    msg_id = queue.send(due=LATER, param1="echo done >&3", **fields)
    return msg_id, queue.folder(msg_id)


def test_a_folder_that_is_a_mount_point_holds_its_own_message_alone(tmp_path):
    with queue_with(tmp_path, 100) as queue:
        msg_id, folder = in_que(queue)
        with mounted_on(folder):
            queue.ok("run_message", {"msg_id": msg_id})
            found = waits_alone(queue, msg_id)
            assert "busy" in found["story"]["why"]
            assert queue.ok("detail")["reason"] is None
        assert queue.ended(msg_id)["state"] == "done"


@pytest.mark.slow
def test_a_folder_that_stays_as_it_is_ends_in_err_and_tells_why(tmp_path):
    with queue_with(tmp_path, 2) as queue:
        msg_id, folder = in_que(queue)
        with mounted_on(folder):
            queue.ok("run_message", {"msg_id": msg_id})
            found = queue.ended(msg_id)
            assert found["state"] == "err"
            assert found["result"]["cause"] == "folder_limit"
            wait_until(lambda: "busy" in (queue.ok("detail")["stuck"] or ""))
            assert "cannot be brought" in queue.get(msg_id)["story"]["why"]
            followed = rq("logs", "-f", msg_id, root=queue.root.path)
            assert followed.returncode == 0
            assert "it has ended" in followed.stderr
            assert queue.run(param1="echo done >&3")["state"] == "done"
        wait_until(lambda: queue.ok("detail")["stuck"] is None)
        queue.ok("retry_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["state"] == "done"


@pytest.mark.parametrize("what", ["fail", "torn"])
def test_an_error_of_the_disk_in_one_folder_holds_its_own_message_alone(
    tmp_path, shim, what
):
    with queue_with(tmp_path / "root", 100, shim.env) as queue:
        msg_id, _ = in_que(queue)
        shim.set(f"{what}.renameat", f"run/{msg_id}")
        queue.ok("run_message", {"msg_id": msg_id})
        waits_alone(queue, msg_id)
        shim.clear()
        assert queue.ended(msg_id)["state"] == "done"


def test_what_lies_in_its_way_goes_to_gone(tmp_path):
    with queue_with(tmp_path, 100) as queue:
        msg_id, _ = in_que(queue)
        obstacle = queue.dir.message(State.RUN, msg_id)
        (obstacle / "in the way").mkdir(parents=True)
        queue.ok("run_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["state"] == "done"
        wait_until(lambda: not list((queue.dir.path / "gone").iterdir()))


def test_a_batch_goes_on_without_the_message_whose_folder_cannot_be_used(tmp_path):
    settings = {"batch": {"max": 3, "wait": 60}}
    queue = RunningQueue(tmp_path, "t", BATCH, num_workers=1, **settings)
    queue.env = {"TEST_FOLDER_TRIES": "100"}
    with kept(queue):
        sent = [queue.send(param1=str(n), due=LATER) for n in range(3)]
        with mounted_on(queue.folder(sent[1])):
            for one in sent:
                queue.ok("run_message", {"msg_id": one})
            for one in (sent[0], sent[2]):
                assert queue.ended(one)["state"] == "done"
            wait_until(lambda: queue.get(sent[1])["result"].get("cause") == "folder")
        queue.ok("run_message", {"msg_id": sent[1]})
        assert queue.ended(sent[1])["state"] == "done"


TRIP = """
from rq.queues.runner.launch import Launcher

spawn = Launcher.spawn

def tripping(self, attempt, on_exit):
    if attempt.message.params.get("param2") == "trip":
        raise RecursionError("a fault")
    return spawn(self, attempt, on_exit)

Launcher.spawn = tripping

from rq.queues.runner import end

fire = end._fire

def tripping_at_the_end(owner, ending):
    if ending.message.params.get("param2") == "end":
        raise RecursionError("a fault")
    fire(owner, ending)

end._fire = tripping_at_the_end

from rq.queues.delivery import owed

owes = owed.owes

def tripping_at_what_is_owed(spool, settings, message, *rest):
    if message.params.get("param2") == "owes":
        raise RecursionError("a fault")
    return owes(spool, settings, message, *rest)

owed.owes = tripping_at_what_is_owed
"""


class Tripping(RunningQueue):
    """A queue whose RQ has a fault that only some messages meet."""

    prelude = TRIP


def test_a_start_that_nobody_foresaw_to_fail_strands_nothing(tmp_path):
    """No rule knows of it: the slot is free again, and the message waits, then is in err."""
    queue = Tripping(tmp_path, "t", "obey", num_workers=2)
    queue.env = {"TEST_FOLDER_TRIES": "2"}
    with kept(queue):
        fields = {"param1": "echo done >&3"}
        sent = [queue.send(**fields, param2="trip") for _ in range(4)]
        assert [queue.run(**fields)["state"] for _ in range(3)] == ["done"] * 3
        for one in sent:
            found = queue.ended(one)
            assert (found["state"], found["result"]["cause"]) == ("err", "fault")
            assert "RQ failed over it" in found["story"]["why"]
        assert queue.run(**fields)["state"] == "done"


def test_an_end_that_nobody_foresaw_to_fail_strands_nothing(tmp_path):
    queue = Tripping(tmp_path, "t", "obey", num_workers=1)
    with kept(queue):
        for _ in range(2):
            found = queue.run(param1="echo done well >&3", param2="end")
            assert (found["state"], found["result"]["cause"]) == ("err", "fault")
            assert "done, but RQ failed over it" in found["story"]["why"]
        assert queue.run(param1="echo done >&3")["state"] == "done"


def test_an_end_that_nobody_foresaw_to_fail_gives_riders_back(tmp_path):
    queue = Tripping(tmp_path, "t", "obey", num_workers=1, coalesce_params=[2])
    with kept(queue):
        queue.root.pause("t").touch()
        queue.ask("wake")
        fields = {"param1": "echo done >&3", "param2": "owes"}
        sent = [queue.send(**fields) for _ in range(3)]
        queue.root.pause("t").unlink()
        queue.ask("wake")
        for one in sent:
            assert queue.ended(one)["result"]["cause"] == "fault"
        assert queue.run(param1="echo done >&3")["state"] == "done"


def test_a_name_at_the_door_that_no_json_can_hold_is_shown(tmp_path):
    """Not even renamed can it be, for a while: nobody who asks hangs on it."""
    queue = RunningQueue(tmp_path, "t", "obey", num_workers=1)
    deposit = queue.dir.path / "new" / os.fsdecode(b"caf\xe9")
    deposit.mkdir(parents=True)
    (deposit / "msg").write_text('{"dest": "t", "param1": "echo done >&3"}')
    with contextlib.ExitStack() as mount:
        mount.enter_context(mounted_on(deposit))
        with kept(queue):
            left = wait_until(lambda: queue.ok("detail")["left_at_door"])
            assert left == {"caf<U+DCE9>": "Device or resource busy"}
            queue.check()
            mount.close()
            queue.ask("wake")
            wait_until(lambda: queue.ask("num_messages")["done"] == 1)
            assert os.listdir(queue.dir.path / "new") == []
