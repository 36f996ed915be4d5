"""Leases in trouble: what crosses, hangs up, is too large, or is planted loses nothing."""

import contextlib
import os
import select
import time
from pathlib import Path

import pytest
from harness.lease_words import finish, lease, say
from harness.queues import running_queue
from harness.sockets import old_line
from harness.waiting import wait_until

from rq.spool import offline

pytestmark = pytest.mark.process
BIG = 256 * 1024 * 1024


@pytest.fixture
def queue(tmp_path):
    settings = {"pull": {"max": 100_000}, "blocking_params": [2]}
    with running_queue(tmp_path, num_workers=0, **settings) as queue:
        yield queue


def one(queue, **fields):
    asked = {"seconds": fields.pop("seconds", 60)}
    queue.send(**fields)
    [taken] = lease(queue, **asked)
    say(queue, "start", taken)
    return taken


@contextlib.contextmanager
def uploading(queue, taken, tmp_path):
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(BIG)
    with path.open("rb") as source, old_line(queue.dir.socket, 60) as line:
        line.send("file", {"token": taken["token"], "name": "big"}, (source.fileno(),))
        place = queue.dir.path / "run" / taken["msg_id"] / "job/results/1"
        wait_until(lambda: place.is_dir() and any(place.iterdir()))
        yield line


def test_what_is_not_given_back_for_files_on_their_way_does_not_count(queue, tmp_path):
    taken = one(queue)
    with uploading(queue, taken, tmp_path) as line:
        for _ in range(11):
            [row] = say(queue, "release", taken)
            assert (row["ok"], row.get("kind")) == (False, "busy")
        assert line.receive()[1]["ok"]
    assert say(queue, "release", taken)[0]["state"] == "que"
    assert queue.get(taken["msg_id"])["count"] == 0


def hand_in(queue, taken, name, size, tmp_path):
    path = tmp_path / "result"
    with path.open("wb") as file:
        file.truncate(size)
    with path.open("rb") as source:
        about = {"token": taken["token"], "name": name}
        row = queue.ok("file", about, fds=(source.fileno(),))
    return row["ok"], row.get("kind"), row.get("text", "")


def test_what_an_attempt_hands_in_is_bounded(tmp_path):
    pull = {"result_files": 2, "result_bytes": 10}
    with running_queue(tmp_path / "root", num_workers=0, pull=pull) as queue:
        taken = one(queue)
        for name in ("a", "b", "a"):
            assert hand_in(queue, taken, name, 4, tmp_path)[0]
        _, kind, text = hand_in(queue, taken, "c", 0, tmp_path)
        assert (kind, text[:25]) == ("too_large", "c is one file too many: a")
        _, kind, text = hand_in(queue, taken, "b", 7, tmp_path)
        assert (kind, "have handed in 11 bytes" in text) == ("too_large", True)
        assert hand_in(queue, taken, "b", 6, tmp_path)[0]
        queue.crash()
        queue.start()
        assert hand_in(queue, taken, "b", 7, tmp_path)[1] == "too_large"


def test_files_that_are_on_their_way_are_counted_too(tmp_path):
    pull = {"result_bytes": BIG + 10}
    with running_queue(tmp_path / "root", num_workers=0, pull=pull) as queue:
        taken = one(queue)
        with uploading(queue, taken, tmp_path) as line:
            assert hand_in(queue, taken, "other", 11, tmp_path)[1] == "too_large"
            assert hand_in(queue, taken, "big", 1, tmp_path)[1] == "busy"
            assert line.receive()[1]["ok"]
        assert hand_in(queue, taken, "other", 10, tmp_path)[0]


def busy(queue):
    stat = Path(f"/proc/{queue.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("count", [0, 1])
def test_who_waits_costs_nothing_while_there_is_nothing_for_him(queue, count):
    one(queue, param2="same")
    queue.send(param2="same")
    with old_line(queue.dir.socket) as line:
        line.send("lease", {"wait": 60, "label": "w", "count": count})
        wait_until(lambda: len(queue.ok("leases")["workers"]) == 2)
        before, until = busy(queue), time.monotonic() + 1
        wait_until(lambda: time.monotonic() > until)
        assert busy(queue) - before < 0.3


def test_large_messages_come_in_several_answers(queue):
    text = "x" * 100_000
    fields = {f"param{number}": text for number in (1, 3, 4, 5, 6, 7, 8, 9)}
    ids = [queue.send(**fields, param2=str(number)) for number in range(8)]
    answers = [lease(queue, count=8) for _ in range(2)]
    assert [len(answer) for answer in answers] == [6, 2]
    assert [each["msg_id"] for answer in answers for each in answer] == ids
    assert {row["ok"] for row in finish(queue, *answers[0], word="done")} == {True}


@pytest.mark.parametrize("planted", ["link", "loop", "file", "fifo", "directory"])
def test_what_is_planted_in_place_of_a_log_keeps_no_message(queue, planted):
    taken = one(queue)
    job = queue.folder(taken["msg_id"]) / "job"
    plant(job, planted)
    row = queue.ok("log", {"token": taken["token"], "offset": 0, "data": "eHh4"})
    assert not row["ok"]
    assert finish(queue, taken, word="resend", delay=0)[0]["state"] == "que"
    again = wait_until(lambda: lease(queue))
    assert again[0]["msg_id"] == taken["msg_id"]
    assert finish(queue, *again, word="done")[0]["state"] == "done"


def plant(job, what):
    if what in ("link", "loop"):
        job.symlink_to("job" if what == "loop" else "/tmp")
    elif what == "file":
        job.write_text("x")
    else:
        job.mkdir()
        (os.mkfifo if what == "fifo" else os.mkdir)(job / "stdio.log")


def test_a_queue_that_does_not_answer_lets_nobody_tell_of_a_script(queue):
    taken = one(queue)
    queue.stop()
    root = queue.root
    shown = offline.message(root, queue.dir.name, taken["msg_id"], "RQ is not running")
    assert shown["state"] == "run"
    assert "script" not in shown["story"]["what"] + shown["story"]["why"]


@pytest.mark.parametrize("first", [True, False])
def test_of_two_answers_to_one_request_one_may_be_lost(queue, first):
    """Neither is read to its end; the asker of one of them hangs up."""
    large = {f"param{number}": "x" * 130_000 for number in (1, 3, 4)}
    for number in range(9):
        queue.send(param2=number, **large)
    asked = {"count": 9, "request": "r", "label": "blue"}
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(old_line(queue.dir.socket)) for _ in range(2)]
        for line in lines:
            line.send("lease", asked)
            select.select([line], [], [], 20)
        lost, other = lines if first else reversed(lines)
        lost.close()
        for _ in range(3):  # by then the owner has heard of it
            queue.ok("leases")
        rows = say(queue, "start", *other.receive()[1]["leases"])
    assert [row["ok"] for row in rows] == [True] * 9
