"""Leases beside scripts: one schedule, one attempt at a time, one limit for each."""

import os
import signal
import time

import pytest
from harness.lease_words import finish, lease, say
from harness.queues import running_queue
from harness.sockets import old_line
from harness.waiting import wait_until

pytestmark = pytest.mark.process
HOLD = "echo run holding >&3; exec sleep 60"


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, pull={"max": 2, "seconds": 600}) as queue:
        yield queue


def test_slots_bound_scripts_and_pull_max_bounds_leases(queue):
    runs = queue.send(param1=HOLD)
    wait_until(lambda: "holding" in queue.get(runs)["status"])
    ids = [queue.send(param1="echo done >&3") for _ in range(3)]
    taken = lease(queue, count=10)
    assert [each["msg_id"] for each in taken] == ids[:2]
    assert taken[0]["seconds"] == 600
    assert "pull.max" in queue.ok("lease", {})["why"]
    why = queue.get(ids[2])["story"]["why"]
    assert why.startswith("The only slot is taken (num_workers). All 2 leases are out")
    queue.ok("cancel_message", {"msg_id": runs})
    assert queue.ended(ids[2])["state"] == "done"  # by the slot, which is free again
    assert {row["state"] for row in finish(queue, *taken, word="done")} == {"done"}


def test_a_script_that_cannot_start_stops_no_lease(queue):
    queue.configure(script="/nowhere/run")
    queue.ask("wake")
    msg_id = queue.send()
    wait_until(lambda: queue.ask("status") == ["SCRIPTERROR"])
    story = queue.get(msg_id)["story"]
    assert story["why"].startswith("No worker elsewhere has asked for messages")
    assert "Start one: `rq work " in story["todo"]
    [taken] = lease(queue)
    assert taken["msg_id"] == msg_id
    assert finish(queue, taken, word="done")[0]["state"] == "done"


def test_not_two_of_a_key_are_at_work_whoever_works(tmp_path):
    settings = {"num_workers": 2, "blocking_params": [2], "pull": {}}
    with running_queue(tmp_path, **settings) as queue:
        runs = queue.send(param1=HOLD, param2="a")
        wait_until(lambda: "holding" in queue.get(runs)["status"])
        same = queue.send(param1="echo done >&3", param2="a")
        assert lease(queue, count=5) == []
        queue.ok("cancel_message", {"msg_id": runs})
        assert queue.ended(same)["state"] == "done"
        queue.configure(num_workers=0)
        queue.ask("wake")
        queue.send(param2="b")
        [taken] = lease(queue)
        waits = queue.send(param1="echo done >&3", param2="b")
        queue.configure(num_workers=2)
        queue.crash()
        queue.start()
        assert queue.run(param1="echo done >&3", param2="c")["state"] == "done"
        assert queue.state(waits) == "que"
        finish(queue, taken, word="done")
        assert queue.ended(waits)["state"] == "done"


@pytest.mark.parametrize("crash", [False, True])
def test_equal_messages_end_with_the_one_that_is_leased(tmp_path, crash):
    settings = {"num_workers": 0, "coalesce_params": [1], "pull": {}}
    with running_queue(tmp_path, **settings) as queue:
        ids = [queue.send(param1="x") for _ in range(3)]
        [taken] = lease(queue, count=5)
        if crash:
            queue.crash()
            queue.start()
            assert lease(queue) == []
        finish(queue, taken, word="done")
        assert [queue.state(msg_id) for msg_id in ids] == ["done"] * 3
        ids = [queue.send(param1="x") for _ in range(2)]
        [taken] = lease(queue, count=5, seconds=1)
        say(queue, "start", taken)
        [again] = wait_until(lambda: lease(queue, count=5))
        assert again["msg_id"] == ids[0]
        assert again["message"]["count"] == 1


def test_what_nobody_confirms_counts_when_that_happens_six_times(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        msg_id = queue.send()
        for number in range(1, 7):
            os.kill(queue.pid, signal.SIGSTOP)
            with old_line(queue.dir.socket) as line:
                line.send("lease", {})
            os.kill(queue.pid, signal.SIGCONT)
            wait_until(lambda n=number: queue.get(msg_id)["attempt"] == n)
            wait_until(lambda: queue.state(msg_id) == "que")
            assert queue.get(msg_id)["count"] == (number == 6)
        assert queue.get(msg_id)["result"]["cause"] == "not_taken"
        assert lease(queue, seconds=1)  # nobody confirms it
        message = queue.until(msg_id, "que")
        assert "did not confirm" in message["result"]["job_status"]


def test_a_stall_of_the_owner_ends_no_lease(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        queue.send()
        [taken] = lease(queue, seconds=2)
        say(queue, "start", taken)
        os.kill(queue.pid, signal.SIGSTOP)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 3)
        os.kill(queue.pid, signal.SIGCONT)
        assert say(queue, "renew", taken)[0]["ok"]
        finish(queue, taken, word="done")


def test_at_its_limit_a_message_goes_to_err(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        msg_id = queue.send(max_count=1)
        [taken] = lease(queue, seconds=1)
        say(queue, "start", taken)
        message = queue.ended(msg_id)
        assert (message["state"], message["result"]["cause"]) == ("err", "crash_limit")


def test_a_copy_that_an_end_owes_comes_with_it(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        queue.send(param1="x")
        [taken] = lease(queue)
        [row] = finish(queue, taken, word="done", dups=[{"dest": "nowhere"}])
        assert (row["ok"], row["kind"]) == (False, "no_such_queue")
        copies = [{"dest": "t", "delay": 0}, {"dest": "t", "delay": 9999}]
        [row] = finish(queue, taken, word="done", dups=copies)
        assert row["state"] == "done"
        wait_until(lambda: len(queue.ok("list", {"state": "que"})) == 2)
        [copy] = lease(queue, count=9)
        assert copy["message"]["param1"] == "x"
        finish(queue, copy, word="done")


def test_an_end_owes_no_more_copies_than_a_line_shall_hold(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        queue.send(**{f"param{number}": "x" * 100_000 for number in (1, 3, 4, 5, 6)})
        [taken] = lease(queue)
        copies = [{"dest": "t", "delay": 9999}] * 9
        [row] = finish(queue, taken, word="done", dups=copies)
        assert (row["ok"], row["kind"]) == (False, "too_large")
        assert "its 9 copies have 45" in row["text"]
        [row] = finish(queue, taken, word="done", dups=copies[:8])
        assert row["state"] == "done"


def test_a_queue_that_hands_out_leases_no_more_lets_nobody_wait(tmp_path):
    with running_queue(tmp_path, pull={}) as queue:
        msg_id = queue.send(due=time.time() + 9999)
        queue.ok("run_message", {"msg_id": msg_id})
        with old_line(queue.dir.socket) as line:
            line.send("lease", {"wait": 60, "label": "waits"})
            wait_until(lambda: queue.ok("leases")["workers"])
            del queue.settings["pull"]
            queue.configure()
            queue.ask("wake")
            word, text = line.receive()
        assert word == "fail"
        assert "hands out no leases" in text
        assert queue.run(param1="echo done >&3")["state"] == "done"


def test_an_end_while_a_file_is_handed_in_is_told_to_wait(tmp_path):
    with running_queue(tmp_path / "root", num_workers=0, pull={}) as queue:
        msg_id = queue.send()
        [taken] = lease(queue)
        large = tmp_path / "large"
        with large.open("wb") as file:
            file.truncate(64 * 1024 * 1024)
        with old_line(queue.dir.socket) as line, large.open("rb") as file:
            request = {"token": taken["token"], "name": "large"}
            line.send("file", request, [file.fileno()])
            place = queue.dir.path / f"run/{msg_id}/job/results/1"
            wait_until(lambda: list(place.glob(".up-*")))
            [row] = finish(queue, taken, word="done")
            assert (row["ok"], row["kind"]) == (False, "busy")
            assert line.receive()[1]["ok"]
        assert finish(queue, taken, word="done")[0]["state"] == "done"


def test_messages_that_wait_for_a_key_hide_none_behind_them(tmp_path):
    """More of them than are looked at in one go."""
    settings = {"blocking_params": [1], "num_workers": 0, "pull": {}}
    with running_queue(tmp_path, **settings) as queue:
        same = [{"dest": "t", "param1": "a"} for _ in range(1300)]
        queue.ok("create_messages", {"messages": [*same, {"dest": "t", "param1": "b"}]})
        first, second = lease(queue), lease(queue)
        assert [one["message"]["param1"] for one in first + second] == ["a", "b"]
        assert lease(queue) == []
        finish(queue, *first, word="done")
        assert [one["message"]["param1"] for one in lease(queue, count=5)] == ["a"]
