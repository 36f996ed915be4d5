"""Leases and crashes: what goes on, for how long, and what is over."""

import os
import shutil

import pytest
from harness.spool import Clock, Owner

from rq.spool import results
from rq.spool.leases import EndedLeases
from rq.words.states import Event, State

SECONDS = 60.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def owner(tmp_path, clock):
    owner = Owner(tmp_path, clock)
    owner.open()
    yield owner
    if owner.is_open:
        owner.stop()


def leased(owner, seconds=SECONDS, **more):
    """Accept a message and lease it; it is not yet durable."""
    msg_id = owner.submit()
    line = {"hash": "a" * 32, "by": "root/x", "seconds": seconds, **more}
    owner.spool.lease(msg_id, line)
    return msg_id


def ended(owner, msg_id, event=Event.FINISH):
    line = {"hash": "a" * 32, "by": "root/x", "seconds": SECONDS, "word": "w"}
    owner.end(msg_id, event, lease=line)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("pointed", [False, True])
def test_a_crash_leaves_a_lease_as_it_is(owner, clock, settled, pointed):
    msg_id = leased(owner, key="k", riders=["r"], base=7)
    owner.spool.commit()
    if settled or pointed:
        owner.apply()
    if pointed:
        owner.checkpoint()
    clock.now += 30
    spool = owner.again()
    held = spool.leases[msg_id]
    assert spool.find(msg_id) is State.RUN
    assert (held.attempt, held.by, held.key, held.riders, held.base) == (
        1, "root/x", "k", ("r",), 7,
    )  # fmt: skip
    assert held.left == SECONDS
    assert (spool.entry(msg_id).count, spool.entry(msg_id).attempt) == (0, 1)
    owner.apply()
    assert (owner.queue.path / "run" / msg_id).is_dir()


@pytest.mark.parametrize("pointed", [False, True])
def test_a_crash_leaves_a_lease_cancelled(owner, pointed):
    msg_id = leased(owner)
    spool = owner.spool
    spool.lease_notes.cancel(spool.leases[msg_id], "ann")
    spool.commit()
    if pointed:
        owner.apply()
        owner.checkpoint()
    assert owner.again().leases[msg_id].cancelled_by == "ann"
    owner.stop()
    assert owner.open().leases[msg_id].cancelled_by == "ann"


def test_a_checkpoint_holds_more_leases_than_are_written_at_once(owner):
    ids = [leased(owner) for _ in range(1001)]
    owner.checkpoint()
    assert sorted(owner.again().leases) == sorted(ids)


def test_a_crash_gives_no_more_than_twice_the_seconds_of_the_last_renewal(owner, clock):
    msg_id = leased(owner)
    owner.spool.commit()
    clock.now += 90
    assert owner.again().leases[msg_id].left == pytest.approx(30)
    clock.now += 100
    assert owner.again().leases[msg_id].left == 0


def test_a_renewal_that_is_written_down_outlives_crashes(owner, clock):
    msg_id = leased(owner)
    clock.now += 50
    spool = owner.spool
    spool.lease_notes.renew([spool.leases[msg_id]], 200.0)
    spool.commit()
    clock.now += 90
    held = owner.again().leases[msg_id]
    assert (held.left, held.seconds) == (200, 200)


@pytest.mark.parametrize("pointed", [False, True])
def test_what_was_told_of_a_lease_outlives_crashes(owner, pointed):
    msg_id = leased(owner, untaken=2, released=3)
    owner.spool.commit()
    held = owner.again().leases[msg_id]
    assert (held.started, held.cancelled_by) == (False, None)
    notes = owner.spool.lease_notes
    notes.start([held])
    notes.cancel(held, "anna")
    owner.spool.commit()
    if pointed:
        owner.checkpoint()
    held = owner.again().leases[msg_id]
    assert (held.started, held.cancelled_by) == (True, "anna")
    assert (held.untaken, held.released) == (2, 3)


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
@pytest.mark.parametrize("pointed", [False, True])
def test_a_clock_that_is_set_ends_no_lease_and_makes_none_eternal(
    owner, clock, step, pointed
):
    one = leased(owner)
    two = owner.submit()
    owner.spool.lease(two, {"hash": "b" * 32, "by": "b", "seconds": SECONDS})
    clock.now += 10
    notes, out = owner.spool.lease_notes, owner.spool.leases
    notes.renew([out[two]], SECONDS)
    clock.now += step
    notes.clock_stepped(step)
    if pointed:
        owner.checkpoint()
    owner.spool.commit()
    clock.now += 90
    left = {msg_id: held.left for msg_id, held in owner.again().leases.items()}
    assert left == {one: pytest.approx(20), two: pytest.approx(30)}


def test_a_clock_that_is_set_while_no_owner_runs_counts_as_time(owner, clock):
    """Nobody could tell it from time that has passed; set back it counts as none."""
    msg_id = leased(owner)
    owner.spool.commit()
    clock.now -= 7200
    assert owner.again().leases[msg_id].left == SECONDS
    clock.now += 2 * 7200
    assert owner.again().leases[msg_id].left == 0


def test_a_clean_stop_saves_what_was_left(owner, clock):
    msg_id = leased(owner)
    owner.spool.leases[msg_id].left = 12.5
    owner.stop()
    clock.now += 100_000
    assert owner.open().leases[msg_id].left == 12.5
    owner.apply()
    clock.now += 1
    assert owner.again().leases[msg_id].left == SECONDS


def test_a_folder_that_was_moved_by_hand_after_a_clean_stop_ends_its_lease(owner):
    msg_id = leased(owner)
    owner.stop()
    path = owner.queue.path
    (path / "run" / msg_id).rename(path / "que" / msg_id)
    spool = owner.open()
    assert spool.find(msg_id) is State.QUE
    assert spool.leases == {}


def test_a_folder_that_a_power_cut_has_taken_is_made_again_in_run(owner):
    msg_id = leased(owner)
    owner.apply()
    shutil.rmtree(owner.queue.path / "run" / msg_id)
    spool = owner.again()
    assert msg_id in spool.leases
    owner.apply()
    assert (owner.queue.path / "run" / msg_id / "msg").exists()


def test_an_end_is_in_no_lease_any_more(owner):
    msg_id = leased(owner)
    ended(owner, msg_id)
    owner.apply()
    assert owner.spool.leases == {} == owner.again().leases
    assert owner.spool.find(msg_id) is State.DONE


@pytest.mark.parametrize("stop", [False, True])
def test_how_a_lease_has_ended_is_remembered_by_the_fold_and_by_the_index(owner, stop):
    msg_id = leased(owner)
    ended(owner, msg_id, Event.FAIL)
    owner.apply()
    if stop:
        owner.stop()
        owner.open()
    spool = owner.again()
    told = spool.ended_leases.of("a" * 32)
    assert (told.msg_id, told.event, told.by, told.word) == (
        msg_id, "fail", "root/x", "w",
    )  # fmt: skip


def end_line(number, at, seconds=60.0):
    lease = {"hash": f"{number:032}", "by": "b", "seconds": seconds}
    return {"lease": lease, "msg": "m", "ev": "finish", "state": "done", "ts": at * 1e6}


def test_ends_are_forgotten_when_they_are_old_or_too_many():
    leases = EndedLeases()
    leases.take(end_line(1, 0))
    leases.take(end_line(2, 599))
    assert leases.of(f"{1:032}") is not None
    leases.take(end_line(3, 601))
    assert leases.of(f"{1:032}") is None
    for number in range(100_010):
        leases.take(end_line(number, 602))
    assert len(leases) == 100_000


def test_ends_may_come_and_go_while_the_index_is_written():
    leases = EndedLeases()
    for number in range(3):
        leases.take(end_line(number, number))
    rows = leases.rows(2)
    first = next(rows)
    leases.take(end_line(3, 9999))  # which forgets two
    leases.take(end_line(4, 9999))
    assert [row[0] for row in first] == [f"{0:032}", f"{1:032}"]
    assert list(rows) == [[]]
    assert list(EndedLeases(first).rows(9)) == [first]


@pytest.mark.parametrize("crash", [False, True])
def test_files_that_an_end_names_become_attachments(owner, tmp_path, crash):
    msg_id = leased(owner)
    owner.apply()
    path = tmp_path / "file"
    path.write_text("a result")
    fds = len(os.listdir("/proc/self/fd"))
    with path.open("rb") as file, results.opened(owner.spool, msg_id, 1) as place:
        taken = results.take(place, file.fileno(), "report", 100)
    assert len(os.listdir("/proc/self/fd")) == fds
    files = results.verify(owner.spool.dir_fd, msg_id, 1, {"report": taken.sha256})
    message = owner.spool.read(msg_id).with_(attachments=files, attempt=1)
    owner.end(msg_id, message=message, results=["report"])
    owner.spool.commit()
    if crash:
        owner.again()
    owner.apply()
    folder = owner.queue.message(State.DONE, msg_id)
    assert (folder / "attach/report").read_text() == "a result"
