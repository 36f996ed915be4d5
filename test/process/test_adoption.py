"""A queue that the ancestor filled for years: its age counts from the day RQ takes it."""

import json
import os
import time

import pytest
from harness.ancestor import message_at
from harness.queues import RunningQueue, running_queue

pytestmark = pytest.mark.process
OLD = "20150301.1000.00.001.411"
PREPARED = "20150301.1000.00.001.412"
SEEN = "20150301.1000.00.001.413"
DAY = 86400.0
LONG_AGO = 1425204000.0  # of these ids


@pytest.fixture
def queue(tmp_path):
    queue = RunningQueue(tmp_path / "root", "t", "obey")
    places = (f"done/20150301/10/00/{OLD}", f"prep/{PREPARED}", f"err/.{SEEN}")
    for place in places:
        folder = message_at(queue.dir.path / place, "t", "que")
        (folder / "status").write_text('{"job_status": "done long ago"}')
        for path in (folder / "status", folder):
            os.utime(path, (LONG_AGO, LONG_AGO))
    try:
        yield queue
        queue.close()
    finally:
        queue.kill()


def test_what_ended_years_ago_stays_as_long_as_what_ends_today(queue):
    queue.start()
    assert queue.ok("expire", {}) == {"expired": 0, "more": False}
    assert queue.state(OLD) == "done"
    soon = queue.get(OLD)["removed_at"] - time.time()
    assert 6 * DAY < soon <= 7 * DAY
    queue.restart()
    assert queue.ok("expire", {}) == {"expired": 0, "more": False}
    assert queue.state(OLD) == "done"


def test_what_was_prepared_years_ago_can_still_be_committed(queue):
    queue.start()
    assert queue.state(PREPARED) == "prep"
    assert 0 < queue.get(PREPARED)["removed_at"] - time.time() <= 36 * 3600
    assert queue.ask("commit_message", {"msg_id": PREPARED}) == ["ok", "msg commited"]
    queue.ended(PREPARED)


def test_it_goes_when_its_days_have_passed_since_then(queue):
    queue.start()
    assert queue.stop() == 0
    file = queue.dir.adopted
    file.write_text(json.dumps({"at": json.loads(file.read_text())["at"] - 8 * DAY}))
    queue.start()
    assert queue.ok("expire", {})["expired"] == 1
    assert queue.ask("get_message_state", {"msg_id": OLD})[0] == "fail"
    assert queue.ask("get_message_state", {"msg_id": PREPARED})[0] == "fail"


def test_a_queue_of_our_own_is_not_adopted(tmp_path):
    with running_queue(tmp_path / "root") as queue:
        queue.run(param1="echo done >&3")
        queue.restart()
        assert not queue.dir.adopted.exists()
