"""What an ended message owes and could not deliver: listed, and resolved by a person."""

import json

import pytest
from harness.owed import ON, WEEK, Owing, in_doubt
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until

from rq import cli
from rq.spool import folders
from rq.words.states import State

pytestmark = pytest.mark.process

URL = "https://hooks.example/x"
TAKER = "#!/bin/sh\necho done got it >&3\n"


@pytest.fixture
def a(tmp_path):
    with kept(Owing(tmp_path, "a", "obey")) as queue:
        yield queue


@pytest.fixture
def b(tmp_path):
    """The queue that takes copies; it does not run yet."""
    queue = RunningQueue(tmp_path, "b", TAKER)
    try:
        yield queue
        if queue.alive:
            queue.close()
    finally:
        queue.kill()


def got(b):
    """Return what has come; one that moves meanwhile may lie in two of the directories
    that are listed."""
    states = [State.QUE, State.RUN, State.DONE]
    b.ok("check")
    found = {i for state in states for i in folders.list_state(b.dir, state)}
    return sorted(found)


def rq(a, *words):
    return cli.main(["--root", str(a.root.path), "owed", *words])


def test_what_could_not_be_delivered_in_six_days_is_listed_with_all_that_is_known(a, b):
    msg_id = in_doubt(a)
    [one] = a.owed()
    assert (one["msg_id"], one["dest"], one["target"]) == (msg_id, "b", "b")
    assert one["key"].startswith(a.ok("detail")["journal_id"] + "/")
    assert one["why"] == "nobody answers for queue b"
    assert a.ok("detail")["in_doubt"] == 1
    a.crashed()
    [after] = a.owed()
    assert (after["key"], after["in_doubt"]) == (one["key"], True)
    assert "not known any more" in after["why"]
    a.ok("resolve_owed", {"key": one["key"], "as": "dropped"})


def test_a_webhook_in_doubt_is_listed_with_its_url(a):
    in_doubt(a, param1="echo done >&3", post_run_webhook=[URL])
    [one] = a.owed()
    assert (one["dest"], one["target"]) == ("webhook", URL)
    assert one["why"] == "there is no queue webhook"
    a.ok("resolve_owed", {"key": one["key"], "as": "dropped"})


@pytest.mark.parametrize("how", ["delivered", "dropped"])
def test_the_word_of_a_person_ends_it_for_good(a, b, how):
    msg_id = in_doubt(a)
    [one] = a.owed()
    a.ok("resolve_owed", {"key": one["key"], "as": how, "who": "me"})
    a.crashed()
    assert a.owed() == []
    assert a.ok("detail")["owed"] == 0
    b.start()
    a.ok("delete_message", {"msg_id": msg_id})
    assert got(b) == []
    said = [one for one in events(a) if one["ev"] == "sent"]
    assert [(line["said"], line["by"]) for line in said] == [(how, "me")]


def events(queue):
    """Return the sealed lines of a queue's journal."""
    queue.ok("seal")
    files = sorted(queue.dir.history.glob("*/*.jsonl"))
    return [json.loads(line) for one in files for line in one.read_text().splitlines()]


def test_what_is_tried_again_arrives_once_whatever_crashes(a, b):
    in_doubt(a)
    [one] = a.owed()
    a.ok("resolve_owed", {"key": one["key"], "as": "again"})
    a.crashed()
    [again] = a.owed()
    assert not again["in_doubt"]
    assert again["key"] == one["key"]
    assert again["since"] > one["since"] + WEEK - 60
    b.start()
    wait_until(lambda: a.owed() == [], 60)
    a.crashed()
    assert a.owed() == []
    assert len(got(b)) == 1


def test_what_had_arrived_after_all_and_is_tried_again_stays_one(a, b):
    """The same key: only a receiver that has forgotten it makes a second one."""
    b.start()
    a.run(param1=ON, seconds=30)
    wait_until(lambda: len(got(b)) == 1, 60)
    [line] = [one for one in events(a) if one.get("out")]
    [out] = line["out"]
    key = f"{a.ok('detail')['journal_id']}/{line['seq']}/0/{out['bits']}"
    message = {**out["message"], "_key": key}
    assert b.ok("create_message", message).endswith(got(b)[0])
    assert len(got(b)) == 1


def test_an_operator_lists_and_resolves_at_the_command_line(a, b, capfd, monkeypatch):
    from rq.cli import place

    monkeypatch.setattr(place, "demand_running", lambda root: None)
    msg_id = in_doubt(a)
    assert rq(a, "ls", "--json") == 0
    [one] = json.loads(capfd.readouterr().out)
    assert (one["queue"], one["msg_id"], one["in_doubt"]) == ("a", msg_id, True)
    assert rq(a, "ls") == 0
    assert f"a/{msg_id}" in capfd.readouterr().out
    assert rq(a, "resolve", one["key"], "--drop") == 0
    assert "it is given up" in capfd.readouterr().out
    assert rq(a, "ls", "a") == 0
    assert "nothing is left to deliver" in capfd.readouterr().err


def test_what_is_still_tried_may_be_given_up_but_not_taken_for_delivered(a, b):
    a.run(param1=ON, seconds=30)
    [one] = a.owed()
    assert not one["in_doubt"]
    for how in ("delivered", "again"):
        asked = {"key": one["key"], "as": how}
        assert "is not in doubt" in a.refused("resolve_owed", asked)
    a.ok("resolve_owed", {"key": one["key"], "as": "dropped"})
    assert a.owed() == []


def test_what_is_not_owed_cannot_be_resolved(a):
    journal = a.ok("detail")["journal_id"]
    keys = [
        "",
        "1/2/3",
        "x",
        "deadbeef/1/0",
        f"{journal}/99/0",
        f"{journal}//",
        "²/²/²",
    ]
    for key in keys:
        said = a.refused("resolve_owed", {"key": key, "as": "dropped"})
        assert said.startswith("no copy or webhook"), key
        said = a.refused("resolve_owed", {"key": key, "as": "lost"})
        assert "must be one of" in said, key
