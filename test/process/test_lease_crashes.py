"""kill -9 of the owner while leases are out: none is shortened, none is eternal, and an
end counts once."""

import pytest
from harness import lease_words
from harness.lease_words import lease
from harness.queues import running_queue
from harness.sockets import old_line
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown, Unreachable
from rq.spool import check

pytestmark = pytest.mark.process


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        yield queue


def say(queue, command, taken, **asked):
    [row] = lease_words.say(queue, command, taken, **asked)
    return row


def finish(queue, taken, **said):
    [row] = lease_words.finish(queue, taken, **said)
    return row


def crash_in(queue, point, command, arg):
    """Ask for something, and let the owner die at a point of it; start it again."""
    queue.crash_at(point)
    with (
        old_line(queue.dir.socket) as line,
        pytest.raises((OutcomeUnknown, Unreachable)),
    ):
        line.ask(command, arg)
    wait_until(lambda: not queue.alive)
    queue.start()


def again(queue, clean):
    """End the owner, and start another."""
    if clean:
        assert queue.stop() == 0
    else:
        queue.crash()
    queue.start()


@pytest.mark.parametrize("point", ["journal:written", "journal:after-sync"])
def test_an_end_whose_answer_was_lost_counts_once(queue, point):
    queue.send()
    [taken] = lease(queue)
    said = {"token": taken["token"], "word": "resend", "delay": 9999}
    crash_in(queue, point, "finish", {"finishes": [said]})
    row = finish(queue, taken, word="resend", delay=9999)
    assert (row["ok"], row["state"]) == (True, "que")
    message = queue.get(taken["msg_id"])
    assert (message["count"], message["attempt"]) == (1, 1)


def test_a_lease_whose_token_was_lost_is_given_back_uncounted(queue):
    msg_id = queue.send()
    crash_in(queue, "journal:after-sync", "lease", {"seconds": 1})
    message = queue.until(msg_id, "que")
    assert (message["count"], message["result"]["cause"]) == (0, "not_taken")
    [taken] = lease(queue)
    assert taken["attempt"] == 2


def test_a_lease_whose_token_was_lost_does_not_last_for_all_its_seconds(queue):
    queue.send()
    crash_in(queue, "journal:after-sync", "lease", {"seconds": 86_400})
    [row] = queue.ok("leases")["leases"]
    assert not row["started"]
    assert row["until"] - row["since"] < 600


@pytest.mark.parametrize("word", ["start", "renew"])
def test_a_lease_that_was_confirmed_stays_so_after_a_crash(queue, word):
    queue.send()
    [taken] = lease(queue, seconds=86_400)
    say(queue, word, taken)
    queue.crash()
    queue.start()
    [row] = queue.ok("leases")["leases"]
    assert row["started"]
    assert row["until"] - row["since"] > 80_000


@pytest.mark.parametrize("clean", [False, True])
def test_how_often_a_message_was_given_back_outlives_the_owner(queue, clean):
    msg_id = queue.send()
    for _ in range(5):
        [taken] = lease(queue)
        say(queue, "release", taken)
    again(queue, clean)
    for number in range(6):
        [taken] = lease(queue)
        if number == 2:
            again(queue, clean)
        say(queue, "release", taken)
    message = queue.get(msg_id)
    assert (message["count"], message["result"]["cause"]) == (1, "released")


def test_an_end_counts_once_though_the_message_cannot_be_read(queue):
    msg_id = queue.send()
    [taken] = lease(queue)
    say(queue, "start", taken)
    again(queue, clean=True)  # the owner reads it anew
    (queue.dir.path / "run" / msg_id / "msg").write_text("x")
    for _ in range(2):
        row = finish(queue, taken, word="done")
        assert (row["ok"], row.get("state")) == (True, "err")
    assert finish(queue, taken, word="err")["kind"] == "lease_over"
    assert queue.get(msg_id)["result"]["cause"] == "bad_message"


def test_a_crash_shortens_no_lease(queue):
    queue.send()
    [taken] = lease(queue, seconds=5)
    assert say(queue, "renew", taken, seconds=600)["seconds"] == 600
    queue.crash()
    queue.start()
    [row] = queue.ok("leases")["leases"]
    assert row["until"] - queue.ok("leases")["leases"][0]["since"] > 590
    assert say(queue, "renew", taken)["seconds"] == 600
    assert finish(queue, taken, word="done")["state"] == "done"


def test_a_lease_that_is_over_is_over_after_a_crash(queue):
    msg_id = queue.send()
    [taken] = lease(queue, seconds=1)
    say(queue, "start", taken)
    queue.crash_at("journal:after-sync")
    wait_until(lambda: not queue.alive)
    queue.start()
    message = queue.until(msg_id, "que")
    assert (message["count"], message["attempt"]) == (1, 1)
    assert say(queue, "renew", taken)["kind"] == "lease_over"


def test_a_stop_with_leases_out_is_clean(queue):
    msg_id = queue.send()
    [taken] = lease(queue)
    assert queue.stop() == 0
    assert check.check(queue.dir) == []
    queue.start()
    assert queue.state(msg_id) == "run"
    assert finish(queue, taken, word="done")["state"] == "done"


def test_a_word_of_release_counts_once(queue):
    msg_id = queue.send()
    [taken] = lease(queue)
    asked = {"tokens": [taken["token"]]}
    crash_in(queue, "journal:after-sync", "release", asked)
    assert say(queue, "release", taken)["state"] == "que"
    assert queue.get(msg_id)["count"] == 0


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_a_restart_forgets_no_cancel(queue, end):
    """Who has cancelled it was told that it goes to err."""
    msg_id = queue.send()
    [taken] = lease(queue, label="blue")
    say(queue, "start", taken)
    queue.ok("cancel_message", {"msg_id": msg_id, "who": "anna"})
    getattr(queue, end)()
    queue.start()
    news = queue.ok("lease", {"count": 0, "label": "blue"})
    assert news["cancels"] == {msg_id: "cancelled by anna"}
    assert say(queue, "renew", taken)["cancel"] == "cancelled by anna"
    assert finish(queue, taken, word="done")["state"] == "err"
    message = queue.get(msg_id)
    assert (message["result"]["cause"], message["acknowledged"]) == ("cancelled", True)


def test_a_cancel_is_answered_when_it_is_durable(queue):
    msg_id = queue.send()
    [taken] = lease(queue)
    crash_in(queue, "journal:written", "cancel_message", {"msg_id": msg_id})
    assert finish(queue, taken, word="done")["state"] == "err"
