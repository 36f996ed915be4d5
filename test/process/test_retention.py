"""What has ended is removed when it has outlived its queue's retention, and not before."""

import os
import time

import pytest
from harness.queues import RunningQueue, kept, running_queue, short
from harness.waiting import wait_until

from rq.journal import history

pytestmark = pytest.mark.process

DAY = 86400.0


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path) as queue:
        yield queue


def is_there(queue, message):
    return queue.ask("get_message_state", {"msg_id": message})[0] == "ok"


def expire(queue, **wanted):
    queue.check()  # what has ended is looked for among the folders, which follow later
    return queue.ok("expire", wanted)


def test_what_ended_longer_ago_than_its_days_goes(queue):
    queue.configure(retention={"done": {"days": 0}})
    queue.ask("wake")
    message = queue.run(param1="echo done >&3")["msg_id"]
    failed = queue.run(param1="echo err no >&3")["msg_id"]
    assert expire(queue) == {"expired": 1, "more": False}
    assert not is_there(queue, message)
    assert is_there(queue, failed)
    queue.check()


def test_what_tables_were_made_of_stays_as_long_as_its_queue_says(queue):
    queue.configure(retention={"done": {"days": 0}}, spark={"keep_sources": "30d"})
    queue.ask("wake")
    message = queue.run(param1="echo done >&3")
    assert expire(queue) == {"expired": 0, "more": False}
    until = message["result"]["finished"] + 30 * DAY
    shown = queue.get(message["msg_id"])
    assert shown["removed_at"] == pytest.approx(until, abs=5)
    queue.configure(retention={"done": {"days": 0}}, spark={"keep_sources": "0s"})
    queue.ask("wake")
    assert expire(queue) == {"expired": 1, "more": False}


def test_each_hour_what_is_old_goes_without_being_asked_for(tmp_path):
    queue = RunningQueue(tmp_path, "t", "obey", retention={"done": {"days": 0}})
    queue.env["TEST_HOUR"] = "0.4"
    with kept(queue):
        for _ in range(2):
            message = queue.send(param1="echo done >&3")
            wait_until(lambda one=message: not is_there(queue, one), 60)
        failed = queue.run(param1="echo err no >&3")["msg_id"]
        wait_until(lambda: queue.log().count("retention: removed=1") == 2)
        assert is_there(queue, failed)


def test_by_default_nothing_goes_within_a_week(queue):
    message = queue.run(param1="echo done >&3")
    assert expire(queue)["expired"] == 0
    until = message["result"]["finished"] + 7 * DAY
    shown = queue.get(message["msg_id"])
    assert shown["removed_at"] == pytest.approx(until, abs=5)


def test_an_error_goes_only_after_somebody_has_seen_it(queue):
    queue.configure(retention={"dismissed": {"days": 0}})
    queue.ask("wake")
    message = queue.run(param1="echo err no >&3")["msg_id"]
    assert expire(queue)["expired"] == 0
    assert "removed_at" not in queue.get(message)
    queue.ok("ack_errs")
    queue.check()
    assert "removed_at" in queue.get(message)
    assert expire(queue)["expired"] == 1
    assert not is_there(queue, message)


def test_the_newest_stay_by_number(queue):
    queue.configure(retention={"done": {"count": 2}})
    queue.ask("wake")
    sent = [queue.run(param1="echo done >&3")["msg_id"] for _ in range(5)]
    assert expire(queue)["expired"] == 3
    assert [is_there(queue, one) for one in sent] == [False] * 3 + [True] * 2
    assert queue.ask("num_messages")["done"] == 2


def test_somebody_may_ask_for_a_state_and_a_number(queue):
    for _ in range(4):
        queue.run(param1="echo done >&3")
    now = time.time() + 1
    first = expire(queue, state="done", before=now, limit=3)
    assert first == {"expired": 3, "more": True}
    rest = expire(queue, state="done", before=now)
    assert rest == {"expired": 1, "more": False}
    queue.check()


@pytest.mark.parametrize(
    "asked",
    [
        {"state": "que"},
        {"state": "err"},
        {"state": ["done"]},
        {"state": "done", "before": "yesterday"},
        {"state": "done", "keep": -1},
        {"state": "done", "bytes": 1.5},
        {"state": "done", "limit": True},
    ],
)
def test_what_cannot_be_meant_is_refused(queue, asked):
    assert " is " in queue.refused("expire", asked)


def test_a_message_of_many_names_is_gone_after_a_crash_too(queue):
    sent = [queue.run(param1="echo done >&3")["msg_id"] for _ in range(3)]
    assert expire(queue, state="done", keep=1)["expired"] == 2
    queue.crash()
    queue.start()
    assert [is_there(queue, one) for one in sent] == [False, False, True]
    queue.check()


def segments(queue):
    return history.segments(queue.dir.journal_dir)


def test_sealed_history_goes_when_it_is_old_and_recovery_does_not_need_it(queue):
    queue.configure(retention={"history": {"days": 1}})
    for _ in range(3):
        queue.run(param1="echo done >&3")
        queue.ok("seal")
    queue.restart()
    queue.run(param1="echo done >&3")
    queue.ok("seal")
    old = [one for one in segments(queue) if one.last]
    for one in old:
        then = time.time() - 2 * DAY
        os.utime(one.path, (then, then))
    expire(queue)
    kept = segments(queue)
    # The last sealed one came after the checkpoint of the clean stop.
    assert [one.path for one in kept if one.last] == [old[-1].path]
    queue.crash()
    queue.start()
    assert queue.ask("num_messages")["done"] == 4
    queue.check()


def test_history_stays_until_an_index_remembers_its_keys(queue):
    asked = {"dest": "q", "param1": "echo done >&3", "_key": "cafe/1/0"}
    first = queue.ok("create_message", asked)
    queue.until(short(first), "done")
    queue.ok("seal")
    assert queue.stop() == 0
    queue.dir.index.unlink()  # as if there had been no stop, but a checkpoint
    queue.configure(retention={"history": {"days": 1}})
    queue.start()
    for one in segments(queue):
        os.utime(one.path, (time.time() - 2 * DAY,) * 2)
    expire(queue)
    queue.crash()
    queue.start()
    assert queue.ok("create_message", asked) == first
    assert queue.ask("num_messages")["done"] == 1


def test_a_message_says_when_it_will_be_removed(queue):
    queue.configure(retention={"done": None})
    queue.ask("wake")
    message = queue.run(param1="echo done >&3")["msg_id"]
    assert "removed_at" not in queue.get(message)
    prepared = queue.ok("prep_message", {"dest": "t"}).rpartition("/")[2]
    assert queue.get(prepared)["removed_at"] == pytest.approx(
        time.time() + 36 * 3600, abs=60
    )
