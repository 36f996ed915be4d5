"""Leases by token, over the control socket: handed out, gone on with, ended once."""

import base64
import contextlib
import hashlib
import os
import signal
import time

import pytest
from harness import lease_words
from harness.lease_words import finish, say
from harness.queues import running_queue, short
from harness.sockets import old_line
from harness.waiting import wait_until

pytestmark = pytest.mark.process
NOBODY = "20200101.0000.00.000.1~1~" + "0" * 32


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    with running_queue(path, num_workers=0, pull={}) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    """The queue, with nothing in que or run."""
    yield shared
    while lease(shared, count=100):
        pass
    if TAKEN:
        finish(shared, *TAKEN, word="err")
    TAKEN.clear()
    assert leases(shared) == []
    shared.check()


TAKEN = []  # in this test


def lease(queue, **asked):
    taken = lease_words.lease(queue, **asked)
    TAKEN.extend(taken)
    return taken


def leases(queue):
    return queue.ok("leases")["leases"]


def one(queue, **asked):
    """Send a message and lease it."""
    msg_id = queue.send()
    [taken] = lease(queue, **asked)
    assert taken["msg_id"] == msg_id
    return taken


def test_a_lease_is_an_attempt_that_is_finished_by_its_token(queue):
    msg_id = queue.send(param1="what to do")
    [taken] = lease(queue, label="blue", seconds=30)
    assert (taken["msg_id"], taken["attempt"], taken["seconds"]) == (msg_id, 1, 30)
    assert taken["message"]["param1"] == "what to do"
    assert say(queue, "start", taken) == [{"token": taken["token"], "ok": True}]
    assert queue.state(msg_id) == "run"
    [ended] = finish(queue, taken, word="done", text="well done")
    assert ended == {"token": taken["token"], "ok": True, "state": "done"}
    result = queue.get(msg_id)["result"]
    assert (result["job_status"], result["cause"]) == ("well done", "done")
    assert result["lease"]["by"].endswith("/blue")
    assert taken["token"] not in str(queue.get(msg_id))


def test_a_lease_takes_the_messages_in_their_order_and_no_more_than_are_due(queue):
    ids = [queue.send() for _ in range(3)]
    queue.send(due=4_000_000_000)
    taken = lease(queue, count=10)
    assert [each["msg_id"] for each in taken] == ids
    assert queue.ok("lease", {})["why"] == "nothing is due"


@pytest.mark.parametrize(
    ("said", "state", "cause"),
    [
        ({"word": "done"}, "done", "done"),
        ({"word": "err", "text": "no"}, "err", "said_err"),
        ({"word": "done", "exit": 3}, "err", "exit"),
        ({"word": "done", "signal": "SIGKILL"}, "err", "signal"),
        ({"exit": 0}, "err", "no_word"),
        ({"word": "err", "unreadable": "no number in it"}, "err", "bad_report"),
        ({"word": "resend", "delay": 9999}, "que", "resend"),
        ({"word": "later", "delay": 9999}, "que", "later"),
        ({"word": "forward", "dest": "nowhere"}, "err", "refused"),
    ],
)
def test_the_words_mean_what_they_mean_in_a_script(queue, said, state, cause):
    taken = one(queue)
    assert finish(queue, taken, **said)[0]["state"] == state
    message = queue.get(taken["msg_id"])
    assert (message["state"], message["result"]["cause"]) == (state, cause)


def test_an_end_counts_once_however_often_it_is_sent(queue):
    taken = one(queue)
    first = finish(queue, taken, word="done", text="a text")
    assert finish(queue, taken, word="done", text="another text") == first
    [other] = finish(queue, taken, word="err")
    assert (other["ok"], other["kind"]) == (False, "lease_over")
    assert "was finished as done by" in other["text"]


def test_an_end_is_remembered_over_a_restart(queue):
    taken, kept = one(queue), one(queue)
    finish(queue, taken, word="resend", delay=9999)
    queue.restart()
    assert finish(queue, taken, word="resend", delay=9999)[0]["state"] == "que"
    assert finish(queue, taken, word="done")[0]["kind"] == "lease_over"
    assert finish(queue, kept, word="done")[0]["state"] == "done"


def test_what_is_not_renewed_runs_out_and_counts(queue):
    taken = one(queue, seconds=1)
    say(queue, "start", taken)
    message = queue.until(taken["msg_id"], "que")
    assert (message["count"], message["result"]["cause"]) == (1, "lease_ended")
    assert "was last heard of" in message["result"]["job_status"]
    [late] = say(queue, "renew", taken)
    assert (late["ok"], late["kind"]) == (False, "lease_over")


def test_a_renewal_lasts_as_long_as_it_says_and_the_next_one_as_long(queue):
    taken = one(queue, seconds=1)
    assert say(queue, "start", taken)[0]["ok"]
    for more in ({"seconds": 600}, {}):
        [row] = say(queue, "renew", taken, **more)
        assert (row["ok"], row["seconds"]) == (True, 600)
    [row] = leases(queue)
    assert row["until"] - time.time() > 500
    [row] = say(queue, "renew", taken, seconds=1)
    assert row["seconds"] == 1
    queue.until(taken["msg_id"], "que")


def test_a_message_that_is_given_back_does_not_count_ten_times(queue):
    msg_id = queue.send(max_count=2)
    for _ in range(10):
        [row] = say(queue, "release", *lease(queue), why="no time")
        assert row["state"] == "que"
    message = queue.get(msg_id)
    assert (message["count"], message["result"]["cause"]) == (0, "released")
    say(queue, "release", *lease(queue))
    assert queue.get(msg_id)["count"] == 1


def test_a_token_that_was_never_given_is_not_told_that_its_lease_is_over(queue):
    taken = one(queue, label="blue")
    guessed = {"token": f"{taken['token'][:-32]}{'0' * 32}"}
    [row] = say(queue, "renew", guessed)
    assert row["kind"] == "lease_over"
    assert row["text"].startswith("no lease has this token: attempt 1 of message")
    assert say(queue, "renew", taken)[0]["ok"]


def test_a_word_without_a_lease_says_why(queue):
    [gone] = say(queue, "start", {"token": NOBODY})
    assert gone["kind"] == "lease_forgotten"
    [bad] = say(queue, "start", {"token": "no token"})
    assert bad["kind"] == "bad_input"


def test_who_holds_what_is_listed_without_tokens(queue):
    taken = one(queue, label="green", slots=4, version="1.2")
    reply = queue.ok("leases")
    [row] = reply["leases"]
    assert (row["msg_id"], row["attempt"], row["started"]) == (
        taken["msg_id"],
        1,
        False,
    )
    assert (reply["count"], reply["max"]) == (1, 1000)
    worker = next(each for each in reply["workers"] if each["by"] == row["by"])
    assert (worker["slots"], worker["busy"], worker["version"]) == (4, 1, "1.2")
    assert taken["token"] not in str(reply)


def test_a_queue_without_pull_hands_out_nothing(tmp_path):
    with running_queue(tmp_path) as queue:
        assert 'set "pull" in its config.json' in queue.refused("lease", {})
        assert queue.ok("leases")["max"] == 0


def test_a_leased_message_says_who_holds_it(queue):
    taken = one(queue, label="blue", seconds=600)
    message = queue.get(taken["msg_id"])
    assert message["phase"] == "leased"
    by, _, has_had = message["story"]["why"].partition(" has had it for ")
    assert by.endswith("/blue")
    assert "has not confirmed it yet; its lease runs out in" in has_had
    assert "the lease runs out and the message runs again" in message["story"]["todo"]
    assert say(queue, "start", taken)[0]["ok"]
    queue.ok("cancel_message", {"msg_id": taken["msg_id"], "who": "kim"})
    why = queue.get(taken["msg_id"])["story"]["why"]
    assert "and was heard of" in why
    assert "cancelled by" in why
    [row] = queue.ok("detail")["running"]
    assert (row["msg_id"], row["phase"]) == (taken["msg_id"], "leased")
    assert row["leased_by"].endswith("/blue")
    held = message["result"]["lease"]
    assert held["hash"] == hashlib.sha256(taken["token"].encode()).hexdigest()[:32]
    assert held["seconds"] == 600


def test_a_message_that_waits_says_that_a_worker_is_needed(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        msg_id = queue.send()
        story = queue.get(msg_id)["story"]
        said = "No worker elsewhere has asked for messages since the queue started"
        assert story["why"].startswith(said)
        assert "rq work" in story["todo"]
        queue.ok("lease", {"count": 0, "label": "blue"})
        story = queue.get(msg_id)["story"]
    assert (
        story["why"] == "The next worker elsewhere that is free takes it, in its turn."
    )
    assert story["todo"] == "Nothing; it starts by itself."


# ---- what holders say meanwhile


def log(queue, taken, offset, text, **more):
    data = base64.b64encode(text.encode()).decode()
    return queue.ok(
        "log", {"token": taken["token"], "offset": offset, "data": data, **more}
    )


def test_progress_is_shown_like_that_of_a_script(queue):
    taken = one(queue)
    said = {"token": taken["token"], "text": "half of it", "fraction": 0.5}
    assert queue.ok("progress", said)["ok"]
    [row] = leases(queue)
    assert (row["text"], row["fraction"], row["started"]) == ("half of it", 0.5, True)
    status = queue.folder(taken["msg_id"]) / "status"
    wait_until(lambda: status.exists() and "half of it" in status.read_text())


def test_a_log_is_written_between_the_lines_of_its_attempt(queue):
    taken = one(queue, label="blue")
    assert log(queue, taken, 0, "first\n")["have"] == 6
    assert log(queue, taken, 6, "second\n")["have"] == 13
    finish(queue, taken, word="done")
    head, first, second, last = queue.output(taken["msg_id"]).strip().splitlines()
    assert "RQ START - leased to" in head
    assert head.rstrip().endswith("/blue")
    assert (first, second) == ("first", "second")
    assert "RQ END - done - " in last


@pytest.mark.parametrize(
    ("said", "end"),
    [({"signal": "SIGKILL"}, "SIGKILL"), ({"exit": 3}, "exit 3"), ({}, "done")],
)
def test_the_log_of_a_script_elsewhere_says_how_it_ended(queue, said, end):
    taken = one(queue)
    log(queue, taken, 0, "a line\n")
    finish(queue, taken, word="done", **said)
    assert f"RQ END - {end} - " in queue.output(taken["msg_id"])


def test_a_log_is_gone_on_with_where_it_ends(queue):
    taken = one(queue)
    log(queue, taken, 0, "first\n")
    again = log(queue, taken, 3, "what?\n")
    assert (again["ok"], again["kind"], again["have"]) == (False, "wrong_offset", 6)
    assert log(queue, taken, 10, "more\n", gap=True)["have"] == 26
    assert "first\n[4 bytes lost]\nmore\n" in queue.output(taken["msg_id"])


def test_the_log_of_each_attempt_counts_from_its_own_beginning(queue):
    first = one(queue)
    log(queue, first, 0, "of the first\n")
    finish(queue, first, word="resend")
    [second] = lease(queue)
    queue.restart()
    assert log(queue, second, 0, "of the second\n")["have"] == 14
    queue.crash()
    queue.start()
    assert log(queue, second, 14, "and more\n")["have"] == 23
    text = queue.output(second["msg_id"])
    assert "of the second\nand more\n" in text
    assert (
        text.index("of the first") < text.index("RQ END") < text.index("of the second")
    )


def test_a_log_can_lose_its_end_in_a_power_cut(queue):
    first = one(queue)
    log(queue, first, 0, "of the first\n")
    finish(queue, first, word="resend")
    [second] = lease(queue)
    log(queue, second, 0, "of the second\n")
    path = queue.folder(second["msg_id"]) / "job/stdio.log"
    queue.crash()
    os.truncate(path, 20)
    queue.start()
    assert log(queue, second, 14, "more\n", gap=True)["have"] == 21
    assert path.read_bytes().isascii()
    assert "[14 bytes lost]\nmore\n" in queue.output(second["msg_id"])


# ---- result files


def hand_in(queue, taken, name, content, tmp_path):
    path = tmp_path / "result"
    path.write_bytes(content)
    with path.open("rb") as source:
        return queue.ok(
            "file",
            {"token": taken["token"], "name": name},
            fds=(source.fileno(),),
        )


@pytest.mark.parametrize("crash", [False, True])
def test_result_files_become_attachments_of_what_is_done(queue, tmp_path, crash):
    taken = one(queue)
    row = hand_in(queue, taken, "report.txt", b"all is well", tmp_path)
    assert (row["ok"], row["size"]) == (True, 11)
    if crash:
        queue.crash()
        queue.start()
    ended = finish(queue, taken, word="done", files={"report.txt": row["sha256"]})
    assert ended[0]["state"] == "done"
    if crash:
        queue.crash()
        queue.start()
    file = queue.get(taken["msg_id"])["_attachments"]["report.txt"]
    assert file["sha256"] == row["sha256"]
    assert (
        queue.folder(taken["msg_id"]) / "attach/report.txt"
    ).read_text() == "all is well"


def test_result_files_of_what_is_not_done_are_dropped(queue, tmp_path):
    taken = one(queue)
    row = hand_in(queue, taken, "report.txt", b"x", tmp_path)
    finish(queue, taken, word="err", files={"report.txt": row["sha256"]})
    assert "_attachments" not in queue.get(taken["msg_id"])
    assert not (queue.folder(taken["msg_id"]) / "job/results/1").exists()


def test_a_result_that_was_not_handed_in_ends_nothing(queue):
    taken = one(queue)
    [row] = finish(queue, taken, word="done", files={"report.txt": "0" * 64})
    assert (row["ok"], row["kind"]) == (False, "not_whole")
    assert queue.state(taken["msg_id"]) == "run"


def test_a_result_cannot_replace_what_the_message_came_with(queue, tmp_path):
    path = tmp_path / "input.txt"
    path.write_text("x")
    msg_id = short(queue.ok("prep_message", {"dest": "t"}))
    queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(path)})
    queue.ok("commit_message", {"msg_id": msg_id})
    [taken] = lease(queue)
    assert taken["attachments"][0]["name"] == "input.txt"
    row = hand_in(queue, taken, "input.txt", b"y", tmp_path)
    assert (row["ok"], row["kind"]) == (False, "refused")


# ---- tokens that do not arrive, long polls, cancels


def test_the_same_request_gets_the_same_tokens_until_they_are_confirmed(queue):
    for _ in range(3):
        queue.send()
    first = lease(queue, count=2, request="a")
    assert lease(queue, count=2, request="a") == first
    assert lease(queue, count=2, request="a", label="another") != first
    say(queue, "start", *first)
    assert lease(queue, count=2, request="a") == []


def test_what_nobody_could_be_told_of_is_given_back_at_once(queue):
    with old_line(queue.dir.socket) as line:
        line.send("lease", {"wait": 60, "label": "gone"})
        wait_until(lambda: leases_asked_by(queue, "gone"))
    msg_id = queue.send()
    [taken] = wait_until(lambda: lease(queue))
    assert taken["msg_id"] == msg_id
    assert queue.get(msg_id)["count"] == 0


def leases_asked_by(queue, label):
    workers = queue.ok("leases")["workers"]
    return [each for each in workers if each["by"].endswith(f"/{label}")]


def test_a_connection_that_closed_before_its_answer_gives_back(queue):
    """All of it comes in one turn: the lease, the message, and the end of the line."""
    msg_id = queue.send()
    os.kill(queue.pid, signal.SIGSTOP)
    with old_line(queue.dir.socket) as line:
        line.send("lease", {})
    os.kill(queue.pid, signal.SIGCONT)
    wait_until(lambda: "hung up" in queue.get(msg_id)["status"])
    message = queue.get(msg_id)
    assert (message["state"], message["count"]) == ("que", 0)
    assert message["result"]["cause"] == "not_taken"


def test_those_who_wait_are_served_as_they_came(queue):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(old_line(queue.dir.socket)) for _ in range(3)]
        for number, line in enumerate(lines):
            line.send("lease", {"wait": 60, "label": f"w{number}"})
            wait_until(lambda: leases_asked_by(queue, f"w{number}"))  # noqa: B023
        ids = [queue.send() for _ in range(3)]
        served = [line.receive()[1]["leases"] for line in lines]
    TAKEN.extend(taken for [taken] in served)
    assert [taken["msg_id"] for [taken] in served] == ids


def test_who_waits_is_told_why_there_was_nothing(queue):
    reply = queue.ok("lease", {"wait": 0.1})
    assert reply["leases"] == []
    assert reply["why"] == "nothing is due"


def test_what_becomes_due_is_handed_out_then(queue):
    msg_id = queue.send(due=time.time() + 0.3)
    [taken] = lease(queue, wait=30)
    assert taken["msg_id"] == msg_id


def test_a_cancel_reaches_a_long_poll_and_the_next_word(queue):
    taken = one(queue, label="busy")
    with old_line(queue.dir.socket) as line:
        line.send("lease", {"count": 0, "wait": 60, "label": "busy"})
        wait_until(lambda: leases_asked_by(queue, "busy"))
        queue.ok("cancel_message", {"msg_id": taken["msg_id"], "who": "anna"})
        reply = line.receive()[1]
    assert reply["cancels"] == {taken["msg_id"]: "cancelled by anna"}
    [row] = say(queue, "renew", taken)
    assert (row["ok"], row["cancel"]) == (True, "cancelled by anna")
    finish(queue, taken, word="done")
    message = queue.get(taken["msg_id"])
    assert (message["state"], message["result"]["cause"]) == ("err", "cancelled")


@pytest.mark.parametrize("file", ["pause", "down"])
def test_a_closed_queue_hands_out_nothing_and_takes_all_say(queue, file):
    taken = one(queue)
    path = getattr(queue.root, file)("t")
    path.touch()
    queue.ask("wake")
    try:
        queue_says = queue.ok("lease", {})
        assert queue_says["why"] == f"the queue is {file.upper()}"
        assert say(queue, "start", taken)[0]["ok"]
        assert say(queue, "renew", taken)[0]["ok"]
        assert queue.ok("progress", {"token": taken["token"], "text": "x"})["ok"]
        assert log(queue, taken, 0, "x")["ok"]
        assert finish(queue, taken, word="done")[0]["ok"]
    finally:
        path.unlink()
        queue.ask("wake")


# ---- what cannot be asked


@pytest.mark.parametrize(
    ("command", "arg"),
    [
        ("lease", {"count": 1001}),
        ("lease", {"count": True}),
        ("lease", {"seconds": 0.5}),
        ("lease", {"seconds": 86_401}),
        ("lease", {"wait": 61}),
        ("lease", {"label": "x" * 65}),
        ("lease", {"label": "a\nb"}),
        ("lease", {"request": 5}),
        ("start", {}),
        ("start", {"tokens": []}),
        ("renew", {"tokens": ["x"], "seconds": -1}),
        ("finish", {"finishes": "all"}),
        ("finish", {"finishes": [{}] * 1001}),
        ("leases", {"limit": -1}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(queue, command, arg):
    with old_line(queue.dir.socket) as line:
        line.ask("kinds")
        word, _, kind = line.ask(command, arg)
    assert (word, kind) == ("fail", "bad_input")


@pytest.mark.parametrize(
    "said",
    [
        {"word": "relayed"},
        {"word": "what"},
        {},
        {"word": "forward"},
        {"word": "forward", "dest": "a b"},
        {"word": "resend", "delay": -1},
        {"word": "done", "exit": 256},
        {"word": "done", "run_us": 1.5},
        {"word": "done", "text": ["x"]},
        {"word": "done", "dups": [{}]},
        {"word": "done", "files": {"../x": "0"}},
        {"word": "later", "waits_for": "a\x00b"},
    ],
)
def test_an_end_that_makes_no_sense_ends_nothing(queue, said):
    taken = one(queue)
    [row] = finish(queue, taken, **said)
    assert (row["ok"], row["kind"]) == (False, "bad_input")
    assert queue.state(taken["msg_id"]) == "run"
