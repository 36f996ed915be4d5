"""`rq check`: each kind of trouble is found, named, and mended when that is asked."""

import os
import shutil
import threading

import pytest
from harness.spool import Owner, check_live

from rq.proc import locks
from rq.spool import check, folders, stopped_cleanly
from rq.words.states import Event, State


@pytest.fixture
def owner(tmp_path):
    """A stopped queue with a message in que, one in done and one in err."""
    made = Owner(tmp_path)
    made.open()
    for event in (None, Event.FINISH, Event.FAIL):
        msg_id = made.submit()
        if event is not None:
            made.spool.claim(msg_id, 0)
            made.end(msg_id, event)
    made.apply()
    made.stop()
    return made


HANDS = ", as if others had removed or moved folders: `rq check --fix` counts again"


def where(owner, state):
    (msg_id,) = folders.list_state(owner.queue, state)
    return owner.queue.message(state, msg_id)


def kinds(owner):
    return {one.kind for one in check.check(owner.queue)}


def test_a_sound_queue_has_no_problem(owner):
    assert check.check(owner.queue) == []


def test_a_wrong_count_is_found(owner):
    shutil.rmtree(where(owner, State.DONE))
    (problem,) = check.check(owner.queue)
    assert (problem.kind, problem.text) == ("count", f"counted 1, there are 0{HANDS}")


@pytest.mark.parametrize("state", [State.QUE, State.DONE])
@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_a_torn_message_is_found(owner, state, content):
    msg = where(owner, state) / "msg"
    msg.unlink()
    if content is not None:
        msg.write_bytes(content)
        msg.chmod(0o640)
    assert kinds(owner) == {"torn"}


def test_a_message_in_two_places_is_found(owner):
    here = where(owner, State.QUE)
    shutil.copytree(here, owner.queue.message(State.ERR, here.name))
    assert kinds(owner) == {"twice"}


@pytest.mark.parametrize("name", ["", "msg"])
def test_a_mode_that_lets_others_in_is_found(owner, name):
    (where(owner, State.QUE) / name).chmod(0o777)
    assert kinds(owner) == {"mode"}


@pytest.mark.parametrize("name", ["que/backup", "run/x.tmp", "err/.hidden", "gone/x"])
def test_what_is_no_message_is_found(owner, name):
    (owner.queue.path / name).mkdir()
    (problem,) = check.check(owner.queue)
    assert (problem.kind, problem.subject) == ("orphan", name)


def test_an_attachment_that_is_missing_is_found(owner):
    attach = where(owner, State.QUE) / "attach"
    attach.mkdir()
    (attach / "x").write_bytes(b"x")
    assert kinds(owner) == {"attachment"}


def test_a_bad_line_is_found_after_a_clean_stop_too(owner):
    [segment] = [
        *owner.queue.history.glob("*/*.jsonl"),
        *owner.queue.journal.glob("*/*"),
    ]
    lines = segment.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b'"', b"x", 1)
    segment.write_bytes(b"\n".join(lines))
    (problem,) = check.check(owner.queue)
    assert (problem.kind, str(segment) in problem.text) == ("damage", True)


def test_an_unclean_end_is_found_and_mended_without_starting_anything(owner):
    owner.open()
    msg_id = owner.submit()
    owner.spool.commit()
    owner.crash()
    assert kinds(owner) == {"unclean"}
    assert check.check(owner.queue, fix=True) == []
    assert stopped_cleanly(owner.queue)
    assert owner.queue.message(State.QUE, msg_id).is_dir()


def test_the_lock_of_an_owner_that_was_just_killed_is_waited_for(owner):
    owner.open()
    owner.crash()
    held = locks.lock(owner.queue.lock)
    dies = threading.Timer(0.2, os.close, [held])
    dies.start()
    assert check.check(owner.queue, fix=True) == []
    dies.join()


def test_a_wrong_count_is_mended(owner):
    shutil.rmtree(where(owner, State.DONE))
    assert check.check(owner.queue, fix=True) == []
    assert check.check(owner.queue) == []


def test_what_was_on_its_way_out_is_mended(owner):
    (owner.queue.path / "gone" / "x").mkdir()
    assert check.check(owner.queue, fix=True) == []


def test_a_torn_message_in_que_is_mended_into_err(owner):
    here = where(owner, State.QUE)
    (here / "msg").write_bytes(b"{")
    os.unlink(owner.queue.index)
    assert check.check(owner.queue, fix=True) == []
    assert owner.queue.message(State.ERR, here.name).is_dir()


def test_a_live_queue_checks_itself(owner):
    owner.open()
    assert check_live(owner.spool) == []
    here = where(owner, State.QUE)
    shutil.rmtree(here)
    found = {(one.kind, one.subject) for one in check_live(owner.spool)}
    assert found == {("count", "que"), ("missing", here.name)}
    owner.crash()


def test_what_moves_while_a_live_queue_is_checked_counts_once(owner):
    """The thread that looks finds a folder in que, and again in run."""
    owner.open()
    here = where(owner, State.QUE)

    async def aside(call, *args):
        survey = call(*args)
        if not hasattr(survey, "again"):
            return survey
        owner.spool.claim(here.name, 0)
        owner.spool.settle_all()
        survey.again.append((here.name, State.RUN))
        survey.number[State.RUN] += 1
        return survey

    async def slices(items, act):
        for item in items:
            act(item)

    assert ended(check.check_live(owner.spool, aside, slices)) == []
    owner.crash()


def ended(work):
    """Return what a coroutine gives that waits for nothing."""
    with pytest.raises(StopIteration) as stopped:
        work.send(None)
    return stopped.value.value


def test_checking_changes_nothing(owner):
    owner.open()
    owner.submit()
    owner.spool.commit()
    owner.crash()
    before = {p: p.stat().st_mtime_ns for p in owner.queue.path.rglob("*")}
    check.check(owner.queue)
    after = {p: p.stat().st_mtime_ns for p in owner.queue.path.rglob("*")}
    assert before == after
