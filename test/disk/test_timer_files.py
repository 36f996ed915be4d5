"""What is kept of timers, and their files when they cannot be read just now."""

import asyncio
import json
import os

import pytest
from harness.limits import no_descriptors

from rq.config import adopted
from rq.errors import CannotRead, NoSuchMessage
from rq.layout import Root
from rq.scandir.passes import Scandir
from rq.timers import commands, folder, state
from rq.timers.folder import Timers
from rq.timers.past import Fire, Past
from rq.timers.sending import LOOK, SELDOM, Sending


def test_what_timers_did_is_not_forgotten_by_who_cannot_read_it_now(tmp_path):
    # They would fire anew, all of them, and what was known be written over.
    root = Root(tmp_path)
    root.config_dir.mkdir()
    root.timers_state.write_text(json.dumps({"timers": {"daily": {"last": 1000.0}}}))
    with no_descriptors(), pytest.raises(CannotRead, match="Too many open files"):
        state.read_state(root)
    assert state.read_state(root)["daily"].last == 1000.0


def test_a_timer_that_cannot_be_read_now_is_read_at_the_next_look(
    tmp_path, monkeypatch
):
    root = Root(tmp_path)
    root.timers.mkdir()
    message = {"dest": "q"}
    path = root.timers / "daily.json"
    path.write_text(json.dumps({"period": 86400, "msg": message}))
    timers = Timers(root, {})

    def lacks(path):
        raise CannotRead(f"{path} cannot be read: Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(folder, "parse", lacks)
        for now in range(2):
            timers.look(float(now), 0.0)
    said = f"{path} cannot be read: Too many open files"
    assert timers.errors == {"daily.json": said}
    timers.look(2.0, 0.0)
    assert (list(timers.timers), timers.errors) == (["daily"], {})


@pytest.fixture
def adopted_root(tmp_path):
    """A root of the Ruby RQ with a timer, that RQ has taken over."""
    root = Root(tmp_path)
    for place in (root.timers, root.config_dir):
        place.mkdir()
    add_timer(root, "old")
    adopted.note(root, 1000.0)
    return root


def add_timer(root, name):
    path = root.timers / f"{name}.json"
    path.write_text(json.dumps({"period": 60, "msg": {"dest": "q"}}))
    return path


def test_a_timer_of_which_it_cannot_be_told_whether_it_waits_stops_no_other(
    adopted_root,
):
    timers = Timers(adopted_root, {"other": Past()})
    add_timer(adopted_root, "other")
    whole = adopted_root.adopted.read_text()
    adopted_root.adopted.write_text("{")
    timers.look(0.0, 0.0)
    timers.leave_out(0.0)
    assert list(timers.timers) == ["other"]
    assert "adopted.json" in timers.errors["old.json"]
    adopted_root.adopted.write_text(whole)
    add_timer(adopted_root, "old").touch()
    timers.look(1.0, 0.0)
    assert timers.past["old"].paused == 1000.0


def test_a_timer_that_was_removed_holds_no_later_one_of_its_name(adopted_root):
    timers = Timers(adopted_root, {})
    timers.look(0.0, 0.0)
    assert timers.past["old"].paused == 1000.0
    (adopted_root.timers / "old.json").unlink()
    timers.look(1.0, 0.0)
    timers.look(1.0 + folder.GONE_FOR, 0.0)
    add_timer(adopted_root, "old")
    timers.look(5.0, 0.0)
    assert timers.past["old"].paused is None


@pytest.mark.parametrize("text", [None, "{"])
def test_one_that_is_accepted_before_it_can_be_read_does_not_wait_when_it_can(
    adopted_root, text
):
    # A timer in YAML, which has no .json yet, or one whose .json is damaged.
    path = adopted_root.timers / "old.json"
    path.unlink()
    if text:
        path.write_text(text)
    timers = Timers(adopted_root, {})
    timers.look(0.0, 0.0)
    assert adopted.names(adopted_root) == ["old"]
    assert commands.accept(Sending(timers), "old", 0.0) is None
    assert adopted.names(adopted_root) == []
    add_timer(adopted_root, "old")
    timers.look(5.0, 0.0)
    assert timers.past["old"].paused is None
    with pytest.raises(NoSuchMessage):
        commands.accept(Sending(timers), "never", 0.0)


@pytest.mark.parametrize("begun", [None, 900.0])
def test_a_fire_that_nobody_was_asked_for_is_decided_anew(tmp_path, begun):
    # So what it is to catch up counts when its queue is there. One that was begun before
    # may have been sent then: it is asked for again.
    root = Root(tmp_path)
    for place in (root.timers, root.config_dir):
        place.mkdir()
    path = root.timers / "t.json"
    path.write_text(json.dumps({"period": 60, "msg": {"dest": "q"}}))
    held = Timers(root, {"t": Past(last=840.0, begun=begun)})
    held.look(0.0, 900.0)
    asyncio.run(Sending(held).fire(held.timers["t"], 900.0))
    assert held.past["t"].error == "there is no queue 'q'"
    assert (held.past["t"].failures, held.past["t"].begun) == (1, begun)


def test_what_a_timer_has_done_is_read_as_it_was_kept(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    fires = tuple(Fire(float(n), n + 0.5, "sent", f"http://h/q/q/{n}") for n in (1, 2))
    held = Timers(root, {"t": Past(last=2.0, rule="x", paused=3.0, fires=fires)})
    held.save()
    assert state.read_state(root) == held.past


def sizes(root):
    files = (root.timers_state, root.timers_journal)
    return [(one.stat().st_ino, one.stat().st_size) for one in files]


def test_what_did_not_change_is_not_written_again(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {"t": Past(last=2.0)})
    held.save()
    first = sizes(root)
    held.save()
    assert sizes(root) == first
    held.note("t", last=3.0)
    held.save()
    assert state.read_state(root)["t"].last == 3.0
    assert sizes(root)[0] == first[0]


def test_a_fire_writes_as_much_however_many_timers_there_are(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {f"t{n}": Past(last=1.0, rule="x") for n in range(1000)})
    held.save()
    before = root.timers_journal.stat().st_size
    held.note("t7", begun=2.0)
    held.save()
    assert root.timers_journal.stat().st_size - before < 100
    assert state.read_state(root) == held.past


def test_a_journal_that_has_grown_is_begun_anew_with_all_that_was_done(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {"t": Past(), "gone": Past(last=1.0)})
    held.save()
    first = root.timers_state.read_bytes()
    for n in range(300):
        held.note("t", last=float(n), result=f"sent {n}" + "x" * 1000)
        held.past.pop("gone", None)
        held.save()
    assert root.timers_state.read_bytes() != first
    assert root.timers_journal.stat().st_size < 270_000
    assert state.read_state(root) == held.past
    assert set(held.past) == {"t"}


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_that_was_cut_is_none_and_those_before_it_count(tmp_path, cut):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {"t": Past(last=1.0)})
    held.save()
    held.note("t", last=2.0)
    held.save()
    held.note("t", last=3.0)
    held.save()
    whole = root.timers_journal.read_bytes()
    root.timers_journal.write_bytes(whole[:-cut])
    assert state.read_state(root)["t"].last == 2.0


def test_a_journal_of_another_state_has_nothing_to_add(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {"t": Past(last=1.0)})
    held.save()
    held.note("t", last=2.0)
    held.save()
    journal = root.timers_journal.read_bytes()
    again = Timers(root, {"t": Past(last=9.0)})
    again.save()
    root.timers_journal.write_bytes(journal)  # a kill came before the new one
    assert state.read_state(root)["t"].last == 9.0


def test_after_a_write_that_failed_all_is_written_anew(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {"t": Past(last=1.0)})
    held.save()
    os.close(held.state._journal._fd)  # type: ignore[union-attr]
    held.note("t", last=2.0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        held.save()
    held.save()
    assert state.read_state(root)["t"].last == 2.0


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path, monkeypatch):
    root, read = Root(tmp_path), []
    root.timers.mkdir()
    path = add_timer(root, "daily")
    timers, parse = Timers(root, {}), folder.parse
    monkeypatch.setattr(folder, "parse", lambda path: read.append(path) or parse(path))
    for now in range(3):
        timers.look(float(now), 0.0)
    assert read == [path]
    path.write_text(json.dumps({"period": 120, "msg": {"dest": "q"}}))
    timers.look(3.0, 0.0)
    assert read == [path, path]


@pytest.fixture
def quiet(tmp_path):
    """Timers to which nothing has happened for a while."""
    root = Root(tmp_path)
    for place in (root.timers, root.config_dir, root.queue("q").path):
        place.mkdir(parents=True)
    add_timer(root, "daily")
    sending = Sending(Timers(root, {}))
    sending.held.look(0.0, 0.0)
    sending.stirred = 0.0
    return sending


def test_timers_look_often_while_something_goes_on_or_is_wrong(quiet):
    held, late = quiet.held, 1000.0
    assert quiet.pause(1.0) == LOOK
    assert quiet.pause(late) == SELDOM
    file = held.root.timers / "daily.json"
    file.write_text("{")
    held.look(late, 0.0)
    assert quiet.pause(late) == LOOK
    file.unlink()
    held.look(late, 0.0)
    assert (held.errors, quiet.pause(late)) == ({}, LOOK)  # it may be back at once
    for _ in range(2):  # it is forgotten, and then it is missing no more
        held.look(late + folder.GONE_FOR, 0.0)
    assert quiet.pause(late + folder.GONE_FOR) == SELDOM


def test_timers_look_when_a_queue_is_to_be_asked(quiet):
    fires = quiet.held.fires
    fires.fired("daily", 0.0, 0.0, 0.0, "sent", "http://h/q/q/20260101.0000.00.000.1")
    assert quiet.outcomes.next_in(1000.0) == 0.0
    assert quiet.pause(1000.0) == LOOK
    quiet.outcomes._next["q"] = 1003.0
    assert quiet.pause(1000.0) == 3.0


def test_scandir_sees_what_timers_are_not_hinted_at(tmp_path):
    root = Root(tmp_path)
    for place in (root.timers, root.queues):
        place.mkdir()
    target = tmp_path / "real.json"
    target.write_text("1")
    (root.timers / "daily.json").symlink_to(target)
    scandir = Scandir(root)
    assert scandir.timers_changed()
    (root.timers / "sock").touch()
    assert not scandir.timers_changed()
    target.write_text("22")
    assert scandir.timers_changed()
    assert not scandir.timers_changed()
    (root.queues / "q").mkdir()
    assert scandir.timers_changed()
    (root.timers / "daily.json").unlink()
    assert scandir.timers_changed()
    assert not scandir.timers_changed()
