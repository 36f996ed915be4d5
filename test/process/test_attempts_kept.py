"""What is kept of each attempt: how it ended, where it ran, and its part of the log."""

import os

import orjson
import pytest
from harness import lease_words
from harness.lease_words import finish, say
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.layout import ATTEMPTS
from rq.spool import attempt_files

pytestmark = pytest.mark.process
FORGED = 'printf "\\n1 - 2026-01-01 00:00:00 +0000 - RQ START - /forged\\n"; '
TRIES = FORGED + (
    'echo "this is $RQ_COUNT"; echo run "at $RQ_COUNT" >&3; '
    '[ "$RQ_COUNT" -ge 2 ] && { echo done well >&3; exit; }; exit 75'
)


def attempts(queue, msg_id):
    return queue.ok("get_attempts", {"msg_id": msg_id})["attempts"]


def files(queue, msg_id):
    """Return the content of the files of attempts, by their numbers."""
    place = queue.folder(msg_id) / ATTEMPTS
    there = place.iterdir() if place.exists() else []
    return {int(file.stem): orjson.loads(file.read_bytes()) for file in there}


def part(queue, msg_id, row):
    """Return what the log holds of an attempt."""
    log = queue.folder(msg_id) / "job" / row["log_file"]
    begin, end = row["log"]
    return log.read_bytes()[begin:end].decode()


@pytest.fixture(scope="module", params=["once", "persistent"])
def queue(request, tmp_path_factory):
    script = "obey" if request.param == "once" else "obey_on"
    root = tmp_path_factory.mktemp("root")
    setting = {"on": ["exit", "signal"], "wait": 0}
    with running_queue(root, script, worker=request.param, retry=setting) as queue:
        yield queue
        queue.check()


def test_each_attempt_tells_how_it_ended_and_where_it_ran(queue):
    shown = queue.run(param1=TRIES)
    rows = attempts(queue, shown["msg_id"])
    assert [row["attempt"] for row in rows] == [1, 2, 3]
    assert [row["outcome"] for row in rows] == ["retry", "retry", "done"]
    assert [row["how"] for row in rows][:2] == ["exit status 75"] * 2
    assert "done" in rows[2]["how"]
    for row in rows:
        assert row["host"] == os.uname().nodename
        assert row["pid"] > 1
        assert row["started"] <= row["finished"]
        assert row["run_us"] > 0
    assert ("worker" in rows[0]) == (queue.settings["worker"] == "persistent")
    kept = files(queue, shown["msg_id"])
    assert set(kept) == {1, 2, 3}
    assert kept[2]["exit"] == 75


def test_a_part_of_the_log_is_what_one_attempt_printed_whatever_it_forged(queue):
    shown = queue.run(param1=TRIES)
    rows = attempts(queue, shown["msg_id"])
    for number, row in enumerate(rows):
        printed = part(queue, shown["msg_id"], row)
        assert f"this is {number}\n" in printed
        assert printed.count("this is") == 1
        assert "RQ START - /forged" in printed
        assert printed.startswith("\n")
        assert "RQ END" in printed.splitlines()[-1]
    ends = [row["log"] for row in rows]
    assert [begin for begin, _ in ends] == [0, ends[0][1], ends[1][1]]


def test_an_only_attempt_that_went_well_costs_no_file(queue):
    shown = queue.run(param1="echo text; echo done well >&3")
    assert files(queue, shown["msg_id"]) == {}
    [row] = attempts(queue, shown["msg_id"])
    assert (row["attempt"], row["outcome"], row["text"]) == (1, "done", "well")
    assert "text\n" in part(queue, shown["msg_id"], row)


def test_a_failure_is_kept_when_a_person_lets_it_run_again(queue):
    shown = queue.run(
        param1='[ "$RQ_COUNT" = 0 ] && [ ! -e ../t ] && { touch ../t; '
        "echo err no >&3; exit; }; echo done >&3"
    )
    assert shown["state"] == "err"
    queue.ok("retry_message", {"msg_id": shown["msg_id"]})
    wait_until(lambda: queue.get(shown["msg_id"])["state"] == "done")
    rows = attempts(queue, shown["msg_id"])
    assert [row["outcome"] for row in rows] == ["err", "done"]
    assert rows[0]["text"] == "no"


def test_the_first_and_the_newest_are_kept(queue):
    last = attempt_files.NEWEST + 6
    act = '[ -e ../n ] || echo 0 >../n; n=$(($(cat ../n) + 1)); echo $n >../n; echo "no $n"; '
    act += f'[ $n -lt {last} ] && echo "later 0-$n" >&3 || echo done >&3'
    shown = queue.run(param1=act)
    assert shown["attempt"] == last
    told = queue.ok("get_attempts", {"msg_id": shown["msg_id"]})
    numbers = [row["attempt"] for row in told["attempts"]]
    assert numbers == [1, *range(last - attempt_files.NEWEST + 1, last + 1)]
    assert told["left_out"] == last - len(numbers)
    assert set(files(queue, shown["msg_id"])) == set(numbers)
    for row in told["attempts"]:
        assert f"no {row['attempt']}\n" in part(queue, shown["msg_id"], row)


def test_what_a_script_puts_in_their_place_is_cleared_away(queue):
    act = "rm -rf ../attempts; ln -s /etc ../attempts; " + TRIES
    shown = queue.run(param1=act)
    assert shown["state"] == "done"
    assert [row["attempt"] for row in attempts(queue, shown["msg_id"])] == [3]
    assert not (queue.folder(shown["msg_id"]) / ATTEMPTS).is_symlink()


def test_one_that_runs_is_told_with_its_part_of_the_log(queue):
    act = "echo on; echo run on >&3; until [ -e ../go ]; do sleep 0.05; done; echo done >&3"
    msg_id = queue.send(param1=act)
    wait_until(lambda: "on" in queue.get(msg_id)["status"])
    [row] = attempts(queue, msg_id)
    assert (row["how"], row["log"]) == ("at work", [0, None])
    queue.ok("cancel_message", {"msg_id": msg_id})
    assert queue.ended(msg_id)["state"] == "err"
    [row] = attempts(queue, msg_id)
    assert row["how"].startswith("cancelled by")


def test_a_script_that_fills_their_place_holds_nobody_up(queue):
    act = (
        "mkdir -p ../attempts; cd ../attempts; seq -f %g.json 100 9999 | xargs touch; "
    )
    act += "head -c 3000000 /dev/zero >7.json; cd - >/dev/null; echo run on >&3; "
    msg_id = queue.send(param1=act + "sleep 60")
    wait_until(lambda: "on" in queue.get(msg_id)["status"])
    rows = attempts(queue, msg_id)
    assert [row["attempt"] for row in rows] == [1]
    queue.ok("cancel_message", {"msg_id": msg_id})
    assert queue.ended(msg_id)["state"] == "err"


@pytest.mark.parametrize("point", ["journal:written", "move:before-rename"])
@pytest.mark.parametrize("after", ["1", "2"])
def test_a_kill_loses_none_that_has_ended(tmp_path, point, after):
    setting = {"on": ["exit", "crash"], "wait": 0}
    with running_queue(tmp_path, retry=setting) as queue:
        act = f'[ "$RQ_COUNT" = {after} ] && {{ echo run on >&3; '
        act += 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done; }; '
        act += '[ "$RQ_COUNT" -ge 4 ] && { echo done >&3; exit; }; exit 75'
        msg_id = queue.send(param1=act)
        wait_until(lambda: "on" in queue.get(msg_id)["status"])
        queue.crash_at(point)
        (tmp_path / "go").touch()
        wait_until(lambda: not queue.alive)
        queue.start()
        shown = queue.ended(msg_id)
        assert shown["state"] == "done"
        rows = attempts(queue, msg_id)
        numbers = [row["attempt"] for row in rows]
        assert numbers == list(range(1, shown["attempt"] + 1))
        assert set(files(queue, msg_id)) == set(numbers)


def test_one_that_a_crash_has_lost_tells_so(tmp_path):
    with running_queue(tmp_path) as queue:
        act = 'echo "this is $RQ_COUNT"; [ "$RQ_COUNT" = 1 ] && { echo done >&3; exit; }; '
        msg_id = queue.send(param1=act + "echo run on >&3; sleep 60")
        wait_until(lambda: "on" in queue.get(msg_id)["status"])
        queue.crash()
        queue.start()
        assert queue.ended(msg_id)["state"] == "done"
        first, second = attempts(queue, msg_id)
        assert first["how"] == "lost: RQ ended while it ran"
        assert first["started"] < first["finished"]
        assert "this is 0\n" in part(queue, msg_id, first)
        assert "this is 1\n" in part(queue, msg_id, second)
        assert "this is 0\n" not in part(queue, msg_id, second)


def test_attempts_of_leases_are_kept(tmp_path):
    setting = {"on": ["exit"], "wait": 0}
    with running_queue(tmp_path, num_workers=0, pull={}, retry=setting) as queue:
        msg_id = queue.send()
        for number, status in ((1, 75), (2, 0)):
            [taken] = wait_until(lambda: lease_words.lease(queue, label="blue"))
            say(queue, "start", taken)
            data = "dGhpcyBpcyAx" if number == 1 else "dGhpcyBpcyAy"
            log = {"token": taken["token"], "offset": 0, "data": data}
            assert queue.ok("log", log)["ok"]
            word = {"word": "done"} if status == 0 else {"exit": status}
            finish(queue, taken, **word)
        rows = attempts(queue, msg_id)
        assert [row["attempt"] for row in rows] == [1, 2]
        assert rows[0]["lease"]["by"].endswith("/blue")
        for number, row in enumerate(rows, 1):
            assert part(queue, msg_id, row).count("this is") == 1
            assert f"this is {number}" in part(queue, msg_id, row)


BATCH = """#!/bin/bash
echo "batch $RQ_BATCH_ID"
[ -e "$RQ_ROOT/again" ] && { echo done >&3; exit; }
touch "$RQ_ROOT/again"
exit 75
"""


def test_attempts_in_batches_are_kept_with_the_logs_of_their_batches(tmp_path):
    setting = {"on": [75], "wait": 0}
    batch = {"max": 2, "wait": 0}
    with running_queue(tmp_path, BATCH, batch=batch, retry=setting) as queue:
        ids = [queue.send() for _ in range(2)]
        for msg_id in ids:
            assert queue.ended(msg_id)["state"] == "done"
            rows = attempts(queue, msg_id)
            for row in rows:
                assert f"batch {row['batch']}\n" in part(queue, msg_id, row)
