"""Folders follow the journal: made, moved, removed, and not stopped by one that is stuck."""

import contextlib
import os
import stat

import pytest
from harness.limits import files_of, mounted_on, no_descriptors
from harness.spool import a_message, check_live, deposit, look
from harness.waiting import wait_until

from rq.errors import BadMessage, Busy, NoSuchMessage, WrongState
from rq.layout import folder
from rq.message.message import MESSAGE_LIMIT
from rq.spool import folders, lag, mover
from rq.words.states import Event, Role, State


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_are_0750_and_files_0640(owner):
    msg_id = owner.submit()
    owner.apply()
    owner.spool.claim(msg_id, 0)
    owner.apply()
    owner.spool.run_folders.work_dir(msg_id)
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


def in_que(owner, number):
    """Return messages that wait, with their folders."""
    ids = [owner.submit() for _ in range(number)]
    owner.apply()
    return ids


def settled(owner):
    """Settle all that can be; return how many folders are left."""
    for _ in range(10):
        owner.spool.settle_some(5.0)
    return owner.spool.lag


def test_a_folder_that_is_a_mount_point_holds_up_no_other(owner):
    stuck, free = in_que(owner, 2)
    with mounted_on(owner.queue.message(State.QUE, stuck)):
        for one in (stuck, free):
            owner.spool.claim(one, 0)
        owner.spool.commit()
        assert settled(owner) == 1
        assert "busy" in owner.spool.stuck
        assert stuck in owner.spool.stuck
        assert "busy" in owner.spool.lagging.why_stuck(stuck)
        assert owner.queue.message(State.RUN, free).is_dir()
        with pytest.raises(OSError, match="busy"):
            owner.spool.settle_all()
    owner.apply()
    assert owner.spool.stuck is None
    assert check_live(owner.spool) == []


def test_many_folders_that_are_stuck_hold_up_no_other(owner, monkeypatch):
    """More of them than are looked at in a turn, and older than the one that can move."""
    monkeypatch.setattr(lag, "LOOKS", 8)
    ids = in_que(owner, 20)
    with contextlib.ExitStack() as stack:
        for one in ids[:-1]:
            stack.enter_context(mounted_on(owner.queue.message(State.QUE, one)))
        for one in ids:
            owner.spool.claim(one, 0)
        owner.spool.commit()
        assert settled(owner) == 19
        assert owner.queue.message(State.RUN, ids[-1]).is_dir()
        assert "and 18 more" in owner.spool.stuck
        assert owner.spool.settle_some(5.0) is False  # they rest: nothing to do at once
        assert owner.spool.waited == 0.0
    owner.apply()
    assert check_live(owner.spool) == []


def test_a_folder_that_rests_is_tried_again(owner, monkeypatch):
    monkeypatch.setattr(lag, "REST", 0.01)
    (stuck,) = in_que(owner, 1)
    with mounted_on(owner.queue.message(State.QUE, stuck)):
        owner.spool.claim(stuck, 0)
        owner.spool.commit()
        assert settled(owner) == 1
    wait_until(lambda: owner.spool.settle_some(5.0) or not owner.spool.lag)
    assert owner.spool.stuck is None


def test_what_nobody_foresaw_of_one_folder_holds_up_no_other(owner, monkeypatch):
    odd, free = in_que(owner, 2)
    settle = mover.Mover.settle

    def trip(self, msg_id, entry, spare):
        if msg_id == odd:
            raise RecursionError("too deep")
        return settle(self, msg_id, entry, spare)

    monkeypatch.setattr(mover.Mover, "settle", trip)
    for one in (odd, free):
        owner.spool.claim(one, 0)
    owner.spool.commit()
    assert settled(owner) == 1
    assert "too deep" in owner.spool.stuck
    assert owner.queue.message(State.RUN, free).is_dir()


@pytest.mark.parametrize("what", ["file", "empty", "full", "link"])
@pytest.mark.parametrize("made", [False, True])
def test_what_lies_in_the_place_of_a_folder_goes_its_way(owner, what, made):
    msg_id = owner.submit(param1="kept")
    if made:
        owner.apply()
        owner.spool.claim(msg_id, 0)
    owner.spool.commit()
    state = owner.spool.find(msg_id)
    place = owner.queue.message(state, msg_id)
    victim = owner.queue.path / "victim"
    victim.mkdir()
    if what == "file":
        place.write_text("in the way")
    elif what == "link":
        place.symlink_to(victim)
    else:
        place.mkdir()
    if what == "full":
        (place / "attach").mkdir()
        (place / "attach" / "file").write_text("in the way")
    assert settled(owner) == 0
    assert owner.spool.read(msg_id).params == {"param1": "kept"}
    assert folders.find(owner.queue, msg_id) is state
    assert os.listdir(owner.queue.path / "gone") == os.listdir(victim) == []


@pytest.mark.parametrize("claimed", [False, True])
def test_a_copy_in_another_place_is_not_taken_for_the_message(owner, claimed):
    deposit(owner, "one", attach={"a": b"whole"})
    ((msg_id,),) = [[one.msg_id for one in look(owner)]]
    owner.checkpoint()
    if claimed:
        owner.spool.claim(msg_id, 0)
        owner.spool.commit()
    copy = owner.queue.message(State.RUN, msg_id)
    copy.mkdir()
    (copy / "msg").write_bytes(
        (owner.queue.message(State.QUE, msg_id) / "msg").read_bytes()
    )
    owner.again()
    owner.apply()
    owner.spool.claim(msg_id, 0)
    owner.apply()
    assert (
        owner.queue.message(State.RUN, msg_id) / "attach/a"
    ).read_bytes() == b"whole"
    assert not owner.queue.message(State.QUE, msg_id).exists()


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
    wait_until(lambda: owner.spool.settle_some(5.0) or not owner.spool.lag)
    owner.apply()
    assert os.listdir(owner.queue.path / "prep") == os.listdir(gone) == []
    assert check_live(owner.spool) == []


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
    assert check_live(owner.spool) == []


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
    assert check_live(owner.spool) == []


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
    with pytest.raises(Busy, match="being worked on"):
        owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)


def test_folders_that_are_left_alone_for_now_are_no_work_for_a_loop(owner):
    resting, at_work, waiting = in_que(owner, 3)
    for msg_id in (resting, at_work):
        owner.spool.claim(msg_id, 0)
    owner.spool.rest(resting)
    owner.spool.entries[at_work].busy = True
    owner.spool.fire(waiting, Event.DISCARD, Role.CREATOR)
    owner.spool.commit()
    assert owner.spool.settle_some(5.0) is False
    assert owner.spool.rests
    assert owner.spool.lag == 2
    owner.spool.entries[at_work].busy = False
    wait_until(lambda: owner.spool.settle_some(5.0) or not owner.spool.lag)
    assert not owner.spool.rests


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
    assert check_live(owner.spool) == []
    owner.stop()
    assert not in_the_way.parent.exists()
    found = folders.read_message(owner.queue, State.QUE, msg_id)
    assert found.params == {"param1": "x"}
    owner.open()
    assert owner.spool.find(msg_id) is State.QUE


def test_what_cannot_be_removed_for_lack_of_descriptors_goes_later(owner):
    msg_id = owner.submit()
    owner.apply()
    owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
    owner.spool.commit()
    owner.spool.settle(msg_id)
    with no_descriptors():
        owner.spool.gone.remove_next()
    assert not owner.spool.gone
    assert os.listdir(owner.queue.path / "gone") == [msg_id]
    owner.spool.settle_all()
    assert os.listdir(owner.queue.path / "gone") == []
