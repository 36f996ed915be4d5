"""`forward DEST`: done here, and one copy with its attachments there, whatever crashes."""

import pytest
from harness.kills import site_at
from harness.queues import RunningQueue, running_queue, short
from harness.waiting import wait_until

from rq.spool import folders
from rq.words.states import State

pytestmark = pytest.mark.process

TAKER = "#!/bin/sh\necho done got it >&3\n"
ON = "echo forward b >&3"


@pytest.fixture
def pair(tmp_path):
    """Two queues of one root: `a`, which does what it is told, and `b`."""
    a = RunningQueue(tmp_path, "a", "obey")
    b = RunningQueue(tmp_path, "b", TAKER)
    try:
        a.start()
        b.start()
        yield a, b
        b.close()
        a.close()
    finally:
        a.kill()
        b.kill()


def all_of(queue):
    """Return the messages that a queue holds, in any state but prep, when all folders are
    made; one that moves meanwhile may lie in two of the directories that are listed."""
    queue.ok("check")
    states = [State.QUE, State.RUN, State.DONE, State.ERR]
    found = {i for state in states for i in folders.list_state(queue.dir, state)}
    return sorted(found)


def copies(queue, number=1):
    wait_until(lambda: len(all_of(queue)) >= number)
    return [queue.ended(one) for one in all_of(queue)]


def test_a_message_ends_as_done_and_a_copy_goes_on(pair):
    a, b = pair
    ended = a.run(param1=ON, param2="x", src="me", count=3, max_count=9)
    assert (ended["state"], ended["status"]) == ("done", "done - forwarded to b")
    assert ended["result"]["cause"] == "forwarded"
    assert "handed on" in ended["story"]["what"]
    [copy] = copies(b)
    assert (copy["param1"], copy["param2"], copy["src"]) == (ON, "x", "me")
    assert (copy["dest"], copy["count"], copy["max_count"]) == ("b", 0, 9)
    assert copy["orig_msg_id"] == ended["orig_msg_id"]
    wait_until(lambda: a.ok("detail")["owed"] == 0, 60)


def test_a_param_that_is_no_text_goes_along(pair):
    a, b = pair
    assert a.run(param1=ON, param2={"size": [200, 100]})["status"] == (
        "done - forwarded to b"
    )
    [copy] = copies(b)
    assert copy["param2"] == {"size": [200, 100]}


def attached(queue, path, **fields):
    path.write_text("what travels")
    msg_id = short(queue.ok("prep_message", {"dest": queue.name, **fields}))
    queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(path)})
    queue.ok("commit_message", {"msg_id": msg_id})
    return msg_id


def test_its_attachments_go_along(pair, tmp_path):
    a, b = pair
    msg_id = attached(a, tmp_path / "parcel.txt", param1=ON)
    sent = a.ended(msg_id)
    [copy] = copies(b)
    assert copy["attachments"] == sent["attachments"]
    place = b.folder(copy["msg_id"]) / "attach/parcel.txt"
    assert place.read_text() == "what travels"


def test_a_message_that_still_owes_its_copy_is_not_removed(pair, tmp_path):
    a, b = pair
    b.crash()
    msg_id = attached(a, tmp_path / "parcel.txt", param1=ON)
    a.ended(msg_id)
    a.check()
    assert a.ok("detail")["owed"] == 1
    assert a.ok("expire", {"state": "done", "keep": 0})["expired"] == 0
    assert "still to be handed on to b" in a.refused(
        "delete_message", {"msg_id": msg_id}
    )
    b.start()
    wait_until(lambda: a.ok("detail")["owed"] == 0, 60)
    assert len(copies(b)) == 1
    a.ok("delete_message", {"msg_id": msg_id})


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        ("forward nobody", "forward failed - couldn't connect to queue - nobody"),
        ("forward ../a", "forward failed - couldn't connect to queue - ../a"),
        ("forward http://h:1/q/x", "couldn't connect to queue - relay"),
        ("forward", "cannot read ''; say: forward DEST"),
        ("forward b b", "cannot read 'b b'; say: forward DEST"),
    ],
)
def test_what_nobody_would_take_goes_to_err_with_the_reason(pair, say, reason):
    a, _ = pair
    ended = a.run(param1=f"echo '{say}' >&3")
    assert ended["state"] == "err"
    assert reason in ended["status"]
    assert a.ok("detail")["owed"] == 0


@pytest.mark.parametrize("word", ["down", "pause"])
def test_a_queue_that_is_not_up_is_not_forwarded_to(pair, word):
    a, b = pair
    flag = getattr(a.root, word)("b")
    flag.touch()
    ended = a.run(param1=ON)
    flag.unlink()
    b.ask("wake")
    assert ended["state"] == "err"
    assert ended["status"] == f"err - forward failed - status: {word.upper()}"
    assert all_of(b) == []


def test_a_script_that_fails_after_the_word_forwards_nothing(pair):
    a, b = pair
    assert a.run(param1=f"{ON}; exit 3")["state"] == "err"
    assert all_of(b) == []


def test_a_message_may_go_round_in_its_own_queue(pair):
    a, _ = pair
    once = 'if [ "$RQ_ORIG_MSG_ID" = "$RQ_FULL_MSG_ID" ]; then echo forward a >&3; '
    a.run(param1=once + "else echo done >&3; fi")
    assert [one["state"] for one in copies(a, 2)] == ["done", "done"]


def test_a_url_goes_to_relay(pair, tmp_path):
    a, _ = pair
    with running_queue(tmp_path, TAKER, "relay") as relay:
        a.run(param1="echo forward https://h.example/q/x >&3")
        [copy] = copies(relay)
    assert copy["dest"] == "https://h.example/q/x"


@pytest.mark.parametrize(
    "point", ["journal:before-sync", "journal:after-sync", "move:before-rename"]
)
def test_after_a_crash_of_the_sender_there_is_one_copy(tmp_path, point):
    with site_at(tmp_path / "site") as site:
        a, b = site.queue("a").start(), site.queue("b", TAKER).start()
        site.act("on", "hold; echo forward b >&3")
        msg_id = a.submit("on")
        a.until_started(msg_id)
        a.crash(point, site.go)
        a.start()
        a.until(msg_id, "done")
        wait_until(lambda: a.ok("detail")["owed"] == 0, 60)
        wait_until(b.ids, 60)
        assert len(b.ids()) == 1
        a.prove()
        b.prove()


def test_after_a_crash_of_the_receiver_there_is_one_copy(tmp_path):
    with site_at(tmp_path / "site") as site:
        a, b = site.queue("a").start(), site.queue("b", TAKER).start()
        site.act("on", "echo forward b >&3")
        b.arm("journal:after-sync")
        msg_id = a.submit("on")
        a.until(msg_id, "done")
        assert b.died()
        b.start()
        wait_until(lambda: a.ok("detail")["owed"] == 0, 60)
        assert len(b.ids()) == 1
        a.prove()
        b.prove()


@pytest.mark.slow
def test_what_a_queue_refuses_does_not_stand_before_the_rest(pair, tmp_path):
    a, b = pair
    b.crash()
    path = tmp_path / "parcel.txt"
    for msg_id in [attached(a, path, param1=ON) for _ in range(12)]:
        a.ended(msg_id)
    a.check()
    gone = {}  # a hand has moved them away: what they owe is refused
    for msg_id in folders.list_state(a.dir, State.DONE):
        gone[a.folder(msg_id)] = tmp_path / msg_id
    for place, away in gone.items():
        place.rename(away)
    a.run(param1=ON, param2="the rest")
    b.start()
    wait_until(lambda: all_of(b), 60)
    [copy] = copies(b)
    assert copy["param2"] == "the rest"
    for place, away in gone.items():
        away.rename(place)
    a.crash()
    a.start()  # which tries at once
    wait_until(lambda: a.ok("detail")["owed"] == 0, 60)
    assert len(copies(b)) == 13
