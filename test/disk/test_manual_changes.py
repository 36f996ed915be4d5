"""What a hand moved while a queue was stopped is counted at its next start."""

import json
import os
import shutil

import pytest
from harness.spool import Owner
from harness.waiting import wait_until

from rq.layout import folder
from rq.spool import check
from rq.spool.recovery_scan import ended_have_changed
from rq.words.states import Event, Role, State


@pytest.fixture
def owner(tmp_path):
    """A stopped queue with two messages in done and two in relayed."""
    made = Owner(tmp_path)
    made.open()
    for event in (Event.FINISH, Event.FINISH, Event.RELAY, Event.RELAY):
        msg_id = made.submit()
        made.spool.claim(msg_id, 0)
        made.end(msg_id, event)
    made.stop()
    return made


def messages(owner, state):
    return sorted((owner.queue.path / state).glob("*/*/*/*"))


def counted(owner):
    owner.open()
    there = {
        s: owner.spool.counts.of(s) for s in (State.QUE, State.DONE, State.RELAYED)
    }
    owner.stop()
    assert check.check(owner.queue) == []
    return there


def unchanged_after_a_stop(owner):
    owner.open()
    owner.stop()
    return not ended_have_changed(owner.queue)


def test_nothing_is_listed_where_no_hand_was(owner):
    # What RQ itself did in the same tick of the clock is taken for a hand's.
    wait_until(lambda: unchanged_after_a_stop(owner))


def test_a_message_that_a_hand_sends_round_again_is_counted_once(owner):
    moved = messages(owner, State.DONE)[0]
    os.rename(moved, owner.queue.message(State.QUE, moved.name))
    assert counted(owner) == {State.QUE: 1, State.DONE: 1, State.RELAYED: 2}


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_what_a_hand_deletes_is_not_counted(owner, levels):
    path = messages(owner, State.RELAYED)[0]
    shutil.rmtree(path if levels == 0 else path.parents[levels - 1])
    there = len(messages(owner, State.RELAYED))
    assert there < 2
    assert counted(owner) == {State.QUE: 0, State.DONE: 2, State.RELAYED: there}


def test_a_message_that_a_hand_puts_among_the_done_is_counted(owner):
    moved = messages(owner, State.RELAYED)[0]
    new = owner.queue.path / folder(State.DONE, "20200101.0101.01.001.1")
    new.parent.mkdir(parents=True)
    shutil.copytree(moved, new)
    assert ended_have_changed(owner.queue)
    owner.open()
    assert owner.spool.counts.of(State.DONE) == 3
    owner.crash()


@pytest.mark.parametrize(
    "written",
    [
        {"count": "x"},
        {"count": [1]},
        {"count": -1},
        {"count": 2**40},
        {"attempt": True},
        {"attempt": None},
        {"run_us": "long"},
        {"finished": {}},
        {"job_status": 7},
    ],
)
def test_what_a_hand_writes_about_an_attempt_gets_into_no_line(owner, written):
    """A number of the journal that is none would keep its queue from every start."""
    owner.open()
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    owner.end(msg_id, Event.FAIL)
    owner.stop()
    file = owner.queue.message(State.ERR, msg_id) / "status"
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({**whole, **written}))
    owner.open()
    told = owner.spool.status(msg_id)
    assert told == {k: v for k, v in whole.items() if k not in written}
    owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
    owner.spool.commit()
    owner.crash()
    owner.open()
    assert owner.spool.find(msg_id) is State.DISMISSED
    owner.stop()
    assert check.check(owner.queue) == []
