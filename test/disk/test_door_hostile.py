"""Names and folders at the door that nobody should make: one of them strands no other."""

import json
import os

import orjson
import pytest
from harness.spool import adopt, check_live, deposit, look

from rq.layout import Root
from rq.spool import attach, check, door, folders, offline
from rq.words.states import State

BYTES = os.fsdecode(b"\xff\xfe caf\xe9")  # no UTF-8


def test_a_name_that_is_no_utf_8_is_taken_as_any_other(owner):
    deposit(owner, "a", msg='{"dest": "q", "param1": "first"}')
    deposit(owner, BYTES, msg='{"dest": "q", "param1": "bytes"}')
    deposit(owner, "\N{BLACK HEART SUIT}", msg='{"dest": "q", "param1": "last"}')
    taken = look(owner)
    assert {one.params["param1"] for one in taken} == {"first", "bytes", "last"}


def test_a_name_that_is_no_utf_8_does_not_keep_the_queue_from_its_next_start(owner):
    deposit(owner, "a")
    deposit(owner, BYTES)
    deposit(owner, f"{BYTES}-bad", msg="{")
    adopt(owner.spool)
    owner.spool.commit()
    owner.spool.journal.seal()
    owner.submit()
    owner.spool.commit()
    owner.again()
    owner.apply()
    assert owner.spool.counts.of(State.QUE) == 3
    assert owner.spool.counts.of(State.ERR) == 1
    assert check_live(owner.spool) == []


def test_a_folder_that_nobody_foresaw_strands_no_other(owner, monkeypatch):
    """Whatever goes wrong with one, the others come in, and it is shown."""
    for name in ("a", "odd", "z"):
        deposit(owner, name, msg=json.dumps({"dest": "q", "param1": name}))
    message_of = door._message

    def trip(keeper, found):
        message = message_of(keeper, found)
        if message.params["param1"] == "odd":
            raise RecursionError("too deep")
        return message

    monkeypatch.setattr(door, "_message", trip)
    before = set(owner.spool.entries)
    adopted = adopt(owner.spool)
    assert [one.params["param1"] for one in adopted.messages] == ["a", "z"]
    assert list(adopted.left) == ["odd"]
    taken = {one.msg_id for one in adopted.messages}
    assert set(owner.spool.entries) - before == taken
    owner.spool.commit()
    owner.again()
    owner.apply()
    assert owner.spool.counts.of(State.QUE) == 2


def test_an_event_that_cannot_be_written_takes_no_number_and_changes_nothing(owner):
    msg_id = owner.submit()
    owner.spool.commit()
    seq = owner.spool.journal.seq
    with pytest.raises(TypeError):
        owner.spool.fire(msg_id, "discard", "creator", who="\udcff")
    assert owner.spool.journal.seq == seq
    assert owner.spool.find(msg_id) is State.QUE
    assert owner.spool.counts.of(State.QUE) == 1
    owner.spool.journal.seal()
    owner.submit()
    owner.spool.commit()
    owner.again()
    assert owner.spool.counts.of(State.QUE) == 2


def deep(path, levels):
    """Make directories in each other, deeper than any path is long."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def directory_for_msg(path):
    (path / "msg").unlink()
    (path / "msg").mkdir()
    deep(path / "msg", 3000)


def huge_msg(path):
    with (path / "msg").open("r+b") as file:
        file.truncate(2**42)


def huge_attachment(path):
    (path / "attach").mkdir()
    (path / "attach" / BYTES).write_bytes(b"x")


def odd_file(path):
    (path / BYTES).write_bytes(b"x")


def deep_attachment(path):
    (path / "attach").mkdir()
    deep(path / "attach", 3000)


@pytest.mark.parametrize(
    "plant",
    [directory_for_msg, huge_msg, huge_attachment, odd_file, deep_attachment],
    ids=lambda one: one.__name__,
)
def test_what_no_depositor_should_make_is_refused_and_can_be_removed(owner, plant):
    made = deposit(owner, "bad")
    deposit(owner, "good")
    plant(made)
    assert len(look(owner)) == 1
    (msg_id,) = folders.list_state(owner.queue, State.ERR)
    status = folders.read_status(owner.queue, State.ERR, msg_id)
    assert status["cause"] == "bad_message"
    owner.spool.fire(msg_id, "discard", "creator")
    owner.apply()
    assert os.listdir(owner.queue.path / "gone") == []
    assert check_live(owner.spool) == []


def test_a_copy_that_nobody_foresaw_leaves_nothing_half_made(owner, monkeypatch):
    path = deposit(owner, "theirs", attach={"a": b"x"})
    os.chown(path / "msg", 4321, 4321)

    def trip(*_):
        raise MemoryError

    monkeypatch.setattr(attach, "verify", trip)
    assert list(adopt(owner.spool).left) == ["theirs"]
    owner.apply()
    assert folders.list_state(owner.queue, State.PREP) == []


def test_check_names_what_is_no_utf_8(owner):
    msg_id = owner.submit()
    owner.apply()
    for place in ("prep", "que", "err", "gone"):
        (owner.queue.path / place / BYTES).mkdir()
    attach = owner.queue.message(State.QUE, msg_id) / "attach"
    attach.mkdir()
    (attach / BYTES).write_bytes(b"x")
    found = [one.to_json() for one in check_live(owner.spool)]
    assert {"orphan", "attachment"} == {one["kind"] for one in found}
    assert orjson.dumps(found)
    owner.again()
    owner.stop()
    assert orjson.dumps([one.to_json() for one in check.check(owner.queue, fix=True)])


def test_a_message_of_a_stopped_rq_is_shown_whatever_lies_among_its_files(owner):
    msg_id = owner.submit()
    owner.apply()
    attach = owner.queue.message(State.QUE, msg_id) / "attach"
    attach.mkdir()
    (attach / BYTES).write_bytes(b"x")
    (attach / "deep").mkdir()
    os.mkfifo(attach / "fifo")
    (attach / "plain").write_bytes(b"x")
    owner.stop()
    root = Root(owner.queue.path.parent.parent)
    found = offline.message(root, "q", msg_id, "RQ is not running")
    assert list(found["_attachments"]) == ["plain"]
    assert orjson.dumps(found)
