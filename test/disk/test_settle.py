"""Folders follow the journal: made, moved, removed, and not stopped by one that is stuck."""

import os
import stat

import pytest
from spooling import a_message
from support import files_of

from rq.errors import BadMessage, NoSuchMessage, WrongState
from rq.layout import folder
from rq.message import MESSAGE_LIMIT
from rq.spool import check, folders
from rq.states import Event, Role, State


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_are_0750_and_files_0640(owner):
    msg_id = owner.submit()
    owner.apply()
    owner.spool.claim(msg_id, 0)
    owner.apply()
    owner.spool.work_dir(msg_id)
    owner.end(msg_id)
    owner.apply()
    owner.stop()
    made = owner.queue.message(State.DONE, msg_id)
    for path in (made, made / "job", made.parent, owner.queue.path / "que"):
        assert mode(path) == 0o750
    for path in (made / "msg", made / "status", owner.queue.checkpoint):
        assert mode(path) == 0o640
    for path in owner.queue.history.glob("*/*"):
        assert mode(path) == 0o640


@pytest.mark.parametrize(
    ("event", "state"),
    [(Event.FINISH, State.DONE), (Event.RELAY, State.RELAYED), (Event.FAIL, State.ERR)],
)
def test_a_message_that_has_ended_lies_where_tools_look_for_it(owner, event, state):
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    owner.end(msg_id, event)
    owner.apply()
    assert folders.find(owner.queue, msg_id) is state
    assert (owner.queue.path / folder(state, msg_id) / "msg").is_file()
    assert owner.spool.find(msg_id) is state
    assert msg_id not in owner.spool.entries


def test_a_folder_that_is_stuck_does_not_hold_up_the_others(owner):
    stuck, free = owner.submit(), owner.submit()
    owner.spool.commit()
    obstacle = owner.queue.message(State.QUE, stuck)
    obstacle.write_text("in the way")
    assert owner.spool.settle_some(5.0)  # something was done
    assert not owner.spool.settle_some(5.0)  # all that is left is stuck
    assert stuck in owner.spool.stuck
    assert owner.queue.message(State.QUE, free).is_dir()
    assert owner.spool.find(stuck) is State.QUE
    obstacle.unlink()
    assert not owner.spool.settle_some(5.0)
    assert owner.spool.stuck is None
    assert check.check_live(owner.spool) == []


def test_what_was_half_prepared_is_removed_as_soon_as_the_disk_lets_it_go(owner):
    with files_of(10), pytest.raises(OSError, match="too large"):
        owner.spool.prepare(a_message(msg_id := owner.spool.new_id()))
    assert owner.spool.find(msg_id) is None
    gone, away = owner.queue.path / "gone", owner.queue.path / "away"
    gone.rename(away)
    gone.write_text("in the way")
    assert not owner.spool.settle_some(5.0)
    assert msg_id in owner.spool.stuck
    gone.unlink()
    away.rename(gone)
    while owner.spool.settle_some(5.0):
        pass
    assert os.listdir(owner.queue.path / "prep") == os.listdir(gone) == []
    assert check.check_live(owner.spool) == []


def test_a_folder_that_a_script_removed_is_made_again_from_memory(owner):
    msg_id = owner.submit(param1="kept")
    owner.apply()
    message = owner.spool.claim(msg_id, 0)
    owner.apply()
    here = owner.queue.message(State.RUN, msg_id)
    (here / "msg").unlink()
    here.rmdir()
    owner.end(msg_id, spare=message)
    owner.apply()
    read = folders.read_message(owner.queue, State.DONE, msg_id)
    assert read.params == {"param1": "kept"}
    assert read.extra == {"rebuilt": True}
    assert check.check_live(owner.spool) == []


def test_the_lag_is_known(owner):
    for _ in range(3):
        owner.submit(param1="x" * 100)
    assert owner.spool.lag == 3
    assert owner.spool.lag_bytes > 300
    owner.apply()
    assert (owner.spool.lag, owner.spool.lag_bytes) == (0, 0)


def test_a_message_that_came_and_went_never_becomes_a_folder(owner):
    msg_id = owner.submit()
    owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
    owner.apply()
    assert owner.spool.find(msg_id) is None
    assert owner.spool.entries == {}
    assert folders.count(owner.queue).to_json() == owner.spool.counts.to_json()


@pytest.mark.parametrize("state", [State.QUE, State.DONE])
def test_a_removed_message_leaves_nothing(owner, state):
    msg_id = owner.submit()
    owner.apply()
    if state is State.DONE:
        owner.spool.claim(msg_id, 0)
        owner.end(msg_id)
        owner.apply()
    owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
    owner.apply()
    assert folders.find(owner.queue, msg_id) is None
    assert os.listdir(owner.queue.path / "gone") == []
    with pytest.raises(NoSuchMessage):
        owner.spool.read(msg_id)
    with pytest.raises(WrongState):
        owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)


def test_an_id_can_be_removed_twice_in_one_turn(owner):
    """A depositor may bring an id back before the first folder has left gone/."""
    msg_id = owner.spool.new_id()
    for _ in range(2):
        owner.spool.submit(a_message(msg_id))
        owner.spool.commit()
        owner.spool.settle(msg_id)
        owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
        owner.spool.commit()
        owner.spool.settle(msg_id)
    owner.apply()
    assert check.check_live(owner.spool) == []


def test_a_message_that_is_too_large_leaves_no_trace(owner):
    msg_id = owner.spool.new_id()
    large = a_message(msg_id, note="x" * MESSAGE_LIMIT)
    for refuse in (owner.spool.prepare, owner.spool.submit):
        with pytest.raises(BadMessage, match="at most"):
            refuse(large)
    assert owner.spool.find(msg_id) is None
    assert not owner.spool.journal.pending
    assert folders.count(owner.queue).to_json() == owner.spool.counts.to_json()


def test_the_largest_message_can_be_tried_again(owner):
    room = MESSAGE_LIMIT - len(a_message().encode()) - 100
    msg_id = owner.submit(note="x" * room)
    owner.apply()
    message = owner.spool.claim(msg_id, 0)
    again = message.with_(count=1, dups=("x" * 200,))
    owner.spool.fire(msg_id, Event.RETRY, Role.QUEUE, message=again)
    owner.spool.commit()
    owner.again()
    owner.apply()
    assert owner.spool.read(msg_id).count == 1


def test_a_folder_that_a_thread_works_in_is_left_alone(owner):
    msg_id = owner.submit()
    owner.apply()
    owner.spool.entries[msg_id].busy = True
    with pytest.raises(WrongState, match="being worked on"):
        owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)


def test_a_folder_that_was_half_made_is_the_one_that_goes_on(owner):
    msg_id = owner.submit(param1="x")
    owner.spool.claim(msg_id, 0)
    owner.spool.commit()
    in_the_way = owner.queue.message(State.RUN, msg_id) / "msg"
    in_the_way.parent.mkdir(mode=0o750)
    in_the_way.mkdir()
    with pytest.raises(OSError, match="msg"):  # as when there are no descriptors left
        owner.spool.settle(msg_id)
    in_the_way.rmdir()
    facts = {"cause": "spawn", "text": "it could not be started", "outcome": "requeue"}
    owner.spool.fire(msg_id, Event.REQUEUE, Role.QUEUE, facts=facts)
    owner.apply()
    assert check.check_live(owner.spool) == []
    owner.stop()
    assert not in_the_way.parent.exists()
    found = folders.read_message(owner.queue, State.QUE, msg_id)
    assert found.params == {"param1": "x"}
    owner.open()
    assert owner.spool.find(msg_id) is State.QUE
