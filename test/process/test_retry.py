"""The setting `retry` with scripts, workers that stay, batches, leases, and after a crash."""

import pytest
from harness import lease_words
from harness.lease_words import finish, say
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process

BATCH = """#!/bin/bash
echo "$RQ_BATCH_ID" >> "$RQ_ROOT/ran"
[ -e "$RQ_ROOT/well" ] && { echo done >&3; exit; }
exit 75
"""


def next_of(queue, msg_id):
    """Wait for what is told of the next attempt of a message; return it."""
    return wait_until(lambda: queue.get(msg_id).get("next_attempt"))


@pytest.mark.parametrize("worker", ["once", "persistent"])
def test_a_failed_exit_is_made_again_until_it_succeeds(tmp_path, worker):
    script = "obey" if worker == "once" else "obey_on"
    setting = {"on": [75], "wait": 0}
    with running_queue(tmp_path, script, worker=worker, retry=setting) as queue:
        shown = queue.run(param1='[ "$RQ_COUNT" -ge 2 ] && echo done >&3 || exit 75')
        assert (shown["state"], shown["count"], shown["attempt"]) == ("done", 2, 3)


def test_the_last_of_some_is_in_err_and_says_so(tmp_path):
    setting = {"on": [75], "times": 2, "wait": 0}
    with running_queue(tmp_path, retry=setting) as queue:
        shown = queue.run(param1="echo done >&3; exit 75")
        assert (shown["state"], shown["count"], shown["attempt"]) == ("err", 3, 3)
        assert shown["result"]["tries"] == 3
        assert "last of 3 attempts" in shown["story"]["why"]
        other = queue.run(param1="exit 76")
        assert (other["state"], other["count"], other["attempt"]) == ("err", 0, 1)
        word = queue.run(param1="echo err no >&3; exit 75")
        assert (word["state"], word["count"]) == ("err", 0)


def test_when_the_next_attempt_is_and_why_is_told(tmp_path):
    setting = {"on": ["exit"], "times": 4, "wait": 40}
    with running_queue(tmp_path, retry=setting) as queue:
        msg_id = queue.send(param1="exit 75")
        told = next_of(queue, msg_id)
        shown = queue.get(msg_id)
        assert (told["attempt"], told["of"], told["why"]) == (2, 5, "exit status 75")
        assert told["at"] == shown["due"]
        assert 39 <= told["waits"] <= 41
        assert told["text"].startswith("attempt 2 of 5 at ")
        assert told["text"].endswith("exit status 75, waits 40 s")
        assert "waits for the next" in shown["story"]["what"]
        [row] = queue.ok("list", {"state": "que"})
        assert row["next_attempt"] == told["text"]


def test_a_person_who_cancels_rules_over_it(tmp_path):
    with running_queue(tmp_path, retry={"wait": 0}) as queue:
        msg_id = queue.send(param1="echo run on >&3; sleep 60")
        wait_until(lambda: "on" in queue.get(msg_id)["status"])
        queue.ok("cancel_message", {"msg_id": msg_id})
        shown = queue.ended(msg_id)
        assert (shown["state"], shown["result"]["cause"]) == ("err", "cancelled")


def test_a_batch_whose_process_exits_waits_as_the_rule_says(tmp_path):
    setting = {"on": [75], "times": 3, "wait": 40}
    batch = {"max": 2, "wait": 0}
    with running_queue(tmp_path, BATCH, batch=batch, retry=setting) as queue:
        ids = [queue.send() for _ in range(2)]
        for msg_id in ids:
            told = next_of(queue, msg_id)
            assert (told["attempt"], told["of"]) == (2, 4)
            assert 39 <= told["waits"] <= 41
        (tmp_path / "well").touch()
        for msg_id in ids:
            queue.ok("run_message", {"msg_id": msg_id})
            assert queue.ended(msg_id)["state"] == "done"


def test_a_lease_whose_script_failed_is_made_again(tmp_path):
    setting = {"on": ["exit", "crash"], "times": 2, "wait": 40}
    with running_queue(tmp_path, num_workers=0, pull={}, retry=setting) as queue:
        msg_id = queue.send()
        [taken] = lease_words.lease(queue)
        say(queue, "start", taken)
        [row] = finish(queue, taken, exit=75)
        assert row["state"] == "que"
        told = next_of(queue, msg_id)
        assert (told["attempt"], told["of"], told["why"]) == (2, 3, "exit status 75")


def test_a_lease_that_runs_out_waits_if_a_crash_is_named(tmp_path):
    setting = {"on": ["crash"], "times": 2, "wait": 40}
    with running_queue(tmp_path, num_workers=0, pull={}, retry=setting) as queue:
        msg_id = queue.send()
        [taken] = lease_words.lease(queue, seconds=1)
        say(queue, "start", taken)
        told = next_of(queue, msg_id)
        assert (told["attempt"], told["of"]) == (2, 3)
        assert 39 <= told["waits"] <= 41


@pytest.mark.parametrize(
    ("setting", "state"),
    [
        ({"on": ["crash"], "wait": 40}, "que"),
        ({"on": ["exit"], "wait": 40}, "done"),  # at once, as ever
        ({"on": [], "times": 0}, "err"),
    ],
)
def test_what_a_crash_has_lost_follows_the_same_rule(tmp_path, setting, state):
    with running_queue(tmp_path, retry=setting) as queue:
        act = (
            '[ "$RQ_COUNT" = 1 ] && { echo done >&3; exit; }; echo run on >&3; sleep 60'
        )
        msg_id = queue.send(param1=act)
        wait_until(lambda: "on" in queue.get(msg_id)["status"])
        queue.crash()
        queue.start()
        shown = queue.until(msg_id, state)
        if state == "que":
            assert 39 <= shown["next_attempt"]["waits"] <= 41
        assert shown["count"] == 1
