"""Messages that a person holds: what becomes of that at a crash or a stop."""

import pytest
from harness.spool import Owner, a_message

from rq.message.message import from_disk
from rq.spool import folders
from rq.words.states import State

HOLD = {"by": "ann", "why": "disk swap", "since": 5.0}


@pytest.fixture
def owner(tmp_path):
    owner = Owner(tmp_path)
    owner.open()
    yield owner
    if owner.is_open:
        owner.crash()


def held(owner):
    msg_id = owner.submit()
    owner.spool.hold(msg_id, HOLD)
    owner.spool.commit()
    return msg_id


def is_held(owner, msg_id):
    entry, message = owner.spool.entry(msg_id), owner.spool.read(msg_id)
    assert entry.held is (message.held is not None)
    assert message.held in (None, HOLD)
    return entry.held


def test_it_is_held_after_a_crash(owner):
    msg_id = held(owner)
    owner.again()
    assert is_held(owner, msg_id)
    owner.apply()
    assert folders.read_message(owner.queue, State.QUE, msg_id).held == HOLD


def test_it_is_held_after_a_stop(owner):
    msg_id, other = held(owner), owner.submit()
    owner.apply()
    owner.stop()
    owner.open()
    assert is_held(owner, msg_id)
    assert not is_held(owner, other)


def test_it_is_held_though_the_index_is_lost(owner):
    msg_id = held(owner)
    owner.apply()
    owner.stop()
    owner.queue.index.unlink()
    owner.open()
    assert is_held(owner, msg_id)


def test_it_is_held_though_no_index_was_written(owner):
    msg_id = held(owner)
    freed = held(owner)
    owner.spool.release(freed, "bob")
    owner.checkpoint()
    owner.again()
    assert is_held(owner, msg_id)
    assert not is_held(owner, freed)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_it_is_released_after_a_crash_and_keeps_its_place(owner, checkpoint):
    msg_id, later = held(owner), owner.submit()
    if checkpoint:
        owner.apply()
        owner.stop()
        owner.open()
    seq = owner.spool.entry(msg_id).seq
    owner.spool.release(msg_id, "bob")
    owner.spool.commit()
    owner.again()
    assert not is_held(owner, msg_id)
    assert owner.spool.entry(msg_id).seq == seq < owner.spool.entry(later).seq


def test_a_prepared_message_is_held_once_it_is_committed(owner):
    msg_id = owner.spool.new_id()
    owner.spool.prepare(a_message(msg_id).with_(held=HOLD))
    owner.apply()
    owner.again()
    owner.spool.submit(owner.spool.read(msg_id))
    owner.apply()
    assert is_held(owner, msg_id)


@pytest.mark.parametrize("broken", ["true", '"ann"', "[1]"])
def test_what_a_hand_wrote_there_is_refused_or_read(broken):
    data = b'{"dest": "q", "held": %b}' % broken.encode()
    with pytest.raises(Exception, match="held is not"):
        from_disk(data, "20270115.0800.00.000.1", 0.0)
