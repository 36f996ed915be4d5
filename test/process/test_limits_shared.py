"""Limits where a script has more than one message, or is elsewhere: workers that stay,
batches, leases, agents."""

import base64
import time

import pytest
from harness.extent import rotated
from harness.lease_words import finish, lease, say
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process

WORKER = """#!/bin/sh
. "$RQ_SHARE/rq_worker.sh"
while rq_next; do
    eval "$RQ_PARAM1"
    echo "done $$" >&3
done
"""
BATCH = """#!/bin/bash
mapfile -t ids < <(sed -n 's/^{"msg_id":"\\([^"]*\\)".*/\\1/p' "$RQ_BATCH_FILE")
echo "msg ${ids[0]} done early" >&3
sleep 60
"""


def test_a_worker_that_takes_too_long_ends_with_its_message(tmp_path):
    settings = {"worker": "persistent", "timeout": 0.5, "grace": 0.2}
    with running_queue(tmp_path, WORKER, **settings) as queue:
        late = queue.run(param1="sleep 60")
        assert late["result"]["cause"] == "timeout"
        assert "over its timeout of 500 ms" in late["story"]["why"]
        assert queue.run(param1=":")["state"] == "done"  # by another worker
        silent = queue.run(param1="sleep 60", heartbeat=0.3, timeout=60)
        assert silent["result"]["cause"] == "heartbeat"


def test_head_and_tail_are_kept_of_what_a_worker_prints(tmp_path):
    with running_queue(tmp_path, WORKER, worker="persistent", log_bytes=8192) as queue:
        for _ in range(2):
            message = queue.run(param1="seq -f 'line %08g' 5000; echo and its end")
            assert message["state"] == "done"
            text = queue.output(message["msg_id"])
            assert "bytes are left out here: log_bytes is 8192]" in text
            assert "line 00000001\n" in text
            assert text.splitlines()[-2] == "and its end"
            assert len(text) < 8192 + 500


def test_the_limits_of_a_worker_are_those_of_its_queue(tmp_path):
    settings = {"worker": "persistent", "open_files": 99}
    with running_queue(tmp_path, WORKER, **settings) as queue:
        look = "ulimit -n > $RQ_ROOT/open"
        assert queue.run(param1=look, open_files=50)["state"] == "done"
        assert (tmp_path / "open").read_text() == "99\n"


def test_a_batch_ends_whole_at_the_strictest_limit(tmp_path):
    settings = {"batch": {"max": 3, "wait": 60}, "timeout": 50, "grace": 0.2}
    with running_queue(tmp_path, BATCH, **settings) as queue:
        ids = [queue.send(timeout=limit) for limit in (20, 0.5, 30)]
        ends = [queue.ended(msg_id) for msg_id in ids]
        assert sorted(end["state"] for end in ends) == ["done", "err", "err"]
        causes = [end["result"]["cause"] for end in ends if end["state"] == "err"]
        assert causes == ["timeout", "timeout"]


# ---- leases


@pytest.fixture(scope="module")
def pulled(tmp_path_factory):
    root = tmp_path_factory.mktemp("pulled")
    limits = {"grace": 0.5, "heartbeat": 20}
    with running_queue(root, num_workers=0, pull={"seconds": 60}, **limits) as queue:
        yield queue


def test_a_lease_tells_its_holder_what_to_keep_to(pulled):
    pulled.send(timeout="1m", memory="5 MiB")
    [taken] = lease(pulled)
    told = {"timeout": 60.0, "grace": 0.5, "heartbeat": 20.0, "memory": 5 * 2**20}
    assert taken["limits"] == told
    finish(pulled, taken, word="done")


@pytest.mark.parametrize("killed", [False, True])
def test_of_the_output_of_a_lease_the_head_and_the_tail_are_kept(tmp_path, killed):
    limits = {"log_bytes": "64 KiB"}
    pull = {"seconds": 60}
    with running_queue(tmp_path, num_workers=0, pull=pull, **limits) as queue:
        msg_id = queue.send()
        [taken] = lease(queue)
        say(queue, "start", taken)
        data, at = "head" + "x" * 999_996, 0
        for number in range(12):
            text = data if number < 11 else "y" * 999_996 + "tail"
            sent = base64.b64encode(text.encode()).decode()
            said = {"token": taken["token"], "offset": at, "data": sent}
            at = queue.ok("log", said)["have"]
        assert at == 12_000_000
        path = queue.folder(msg_id) / "job/stdio.log"
        assert path.stat().st_blocks * 512 < 6_000_000, "the middle was given back"
        if killed:
            queue.crash()
            queue.start()
        finish(queue, taken, word="done")
        queue.until(msg_id, "done")
        kept = queue.output(msg_id)
        assert len(kept) < 70_000
        assert "\nhead" in kept
        assert "ytail" in kept
        assert "bytes are left out here: log_bytes is 65536]" in kept


@pytest.mark.parametrize("param1", ["x", "x" * 10_000])
def test_a_limit_of_the_output_of_a_leased_message_outlives_its_queue(tmp_path, param1):
    with running_queue(tmp_path, num_workers=0, pull={"seconds": 60}) as queue:
        msg_id = queue.send(param1=param1, log_bytes=4096)
        [taken] = lease(queue)
        say(queue, "start", taken)
        sent = base64.b64encode(b"x" * 100_000).decode()
        queue.ok("log", {"token": taken["token"], "offset": 0, "data": sent})
        if param1 == "x":
            queue.crash()
            queue.start()
        finish(queue, taken, word="done")
        queue.until(msg_id, "done")
        assert "bytes are left out here: log_bytes is 4096]" in queue.output(msg_id)


def test_a_lease_ends_at_its_timeout_whatever_is_renewed(pulled):
    msg_id = pulled.send(timeout=0.5)
    [taken] = lease(pulled)
    say(pulled, "start", taken)
    began = time.monotonic()

    def is_over():
        [row] = say(pulled, "renew", taken)
        return not row["ok"]

    wait_until(is_over)
    assert time.monotonic() - began >= 0.9
    message = pulled.ended(msg_id)
    assert (message["state"], message["result"]["cause"]) == ("err", "timeout")
    assert "over its timeout" in message["story"]["why"]


@pytest.mark.parametrize("end", rotated(["stop", "crash"]))
def test_a_restarted_queue_knows_when_a_lease_is_over(tmp_path, end):
    with running_queue(tmp_path, num_workers=0, pull={"seconds": 60}) as queue:
        msg_id = queue.send(timeout=1)
        [taken] = lease(queue)
        say(queue, "start", taken)
        getattr(queue, end)()
        queue.start()
        assert queue.ended(msg_id)["result"]["cause"] == "timeout"


def test_a_holder_says_for_which_limit_it_has_ended_a_script(pulled):
    msg_id = pulled.send()
    [taken] = lease(pulled)
    said = {"signal": "SIGKILL", "over": "heartbeat", "over_text": "killed: silent"}
    finish(pulled, taken, **said)
    message = pulled.ended(msg_id)
    assert message["result"]["cause"] == "heartbeat"
    assert message["result"]["job_status"] == "killed: silent"
    pulled.send()
    [taken] = lease(pulled)
    [row] = finish(pulled, taken, exit=1, over="boredom")
    assert not row["ok"]
    assert "over is 'boredom'" in row["text"]
    finish(pulled, taken, word="done")
