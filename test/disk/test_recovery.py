"""Recovery: what the journal says and where the folder lies, row by row, on a real disk."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable

import orjson
import pytest
from harness.limits import no_descriptors
from harness.spool import Clock, Owner, a_message, check_live

from rq.errors import Refused, Unread
from rq.journal import history
from rq.layout import folder
from rq.message.causes import Cause
from rq.proc.lease_holders import prefix_of
from rq.spool import (
    check,
    decisions,
    folders,
    open_spool,
    recovery_apply,
    stopped_cleanly,
)
from rq.spool import lost_attempts as losing
from rq.words.states import COUNTED, Event, Role, State

QUE, RUN, DONE, ERR = State.QUE, State.RUN, State.DONE, State.ERR
PREP, RELAYED, DISMISSED = State.PREP, State.RELAYED, State.DISMISSED


def place_of(owner, msg_id):
    """Return the folders that a message has: in the end it is one, or none."""
    return [
        folder(state, msg_id)
        for state in COUNTED
        if owner.queue.message(state, msg_id).is_dir()
    ]


def lay(owner, msg_id, at):
    """Let the folder of a message lie in `at` and nowhere else, as a crash or a hand
    leaves it; one that is made anew has an empty `msg`, as metadata ahead of data."""
    here = place_of(owner, msg_id)
    if at is None:
        for one in here:
            shutil.rmtree(owner.queue.path / one)
        return
    there = owner.queue.path / folder(at, msg_id)
    there.parent.mkdir(parents=True, exist_ok=True)
    if not here:
        there.mkdir(0o750)
        (there / "msg").touch(0o640)
    elif owner.queue.path / here[0] != there:
        (owner.queue.path / here[0]).rename(there)


def settled(owner):
    """Settle all, and prove that counters, folders and journal agree."""
    owner.apply()
    listed = folders.count(owner.queue)
    assert owner.spool.counts.to_json() == listed.to_json()
    assert check_live(owner.spool) == []
    assert os.listdir(owner.queue.path / "gone") == []


# ---- what has happened before the crash; each gives the id of its message


def new(owner):
    """Accepted after the checkpoint; its folder is not made yet."""
    msg_id = owner.submit(param1="kept")
    owner.spool.commit()
    return msg_id


def old(owner):
    """Accepted before the checkpoint."""
    msg_id = new(owner)
    owner.checkpoint()
    return msg_id


def claimed(make):
    def course(owner):
        msg_id = make(owner)
        owner.spool.claim(msg_id, 0)
        owner.spool.commit()
        return msg_id

    return course


def then(make, event, role=Role.QUEUE, **changes):
    def course(owner):
        msg_id = make(owner)
        message = owner.spool.read(msg_id).with_(**changes) if changes else None
        owner.spool.fire(msg_id, event, role, message=message)
        owner.spool.commit()
        return msg_id

    return course


def ended(make, event=Event.FINISH, cause="done"):
    def course(owner):
        msg_id = claimed(make)(owner)
        facts = {"cause": cause, "text": "fine", "outcome": str(event)}
        owner.spool.fire(msg_id, event, Role.QUEUE, facts=facts)
        owner.spool.commit()
        return msg_id

    return course


def failed_before(owner):
    """In err, before the checkpoint."""
    msg_id = ended(new, Event.FAIL, "said_err")(owner)
    owner.checkpoint()
    return msg_id


def dismissed_before(owner):
    """Acknowledged, before the checkpoint."""
    msg_id = then(failed_before, Event.DISMISS, Role.CREATOR)(owner)
    owner.checkpoint()
    return msg_id


def running_before(owner):
    """Running since before the checkpoint."""
    msg_id = claimed(new)(owner)
    owner.checkpoint()
    return msg_id


def prepared(owner):
    msg_id = owner.spool.new_id()
    owner.spool.prepare(a_message(msg_id, param1="kept"))
    return msg_id


def committed_from_prep(owner):
    msg_id = prepared(owner)
    owner.spool.submit(owner.spool.read(msg_id))
    owner.spool.commit()
    return msg_id


def retried(owner):
    return then(claimed(old), Event.RETRY, count=1, attempt=1, due=5.0)(owner)


def requeued(owner):
    return then(failed_before, Event.REQUEUE, Role.CREATOR, count=0)(owner)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: a course of events, where the folder lies, what becomes of it."""

    course: Callable[[Owner], str]
    at: State | None
    state: State | None
    count: int = 0
    attempt: int = 0
    rebuilt: bool = False
    observed: bool = False
    reported: bool = False


ROWS = {
    "que, folder nowhere": Row(new, None, QUE, rebuilt=True),
    "que, folder in que with a torn msg": Row(new, QUE, QUE),
    "que, folder in prep": Row(committed_from_prep, PREP, QUE),
    "que again, folder nowhere": Row(
        then(old, Event.RESCHEDULE, due=7.0), None, QUE, rebuilt=True
    ),
    "run, folder in run": Row(claimed(old), RUN, QUE, count=1, attempt=1),
    "run, new, folder in run": Row(claimed(new), RUN, QUE, count=1, attempt=1),
    "que by commit, folder in run": Row(new, RUN, QUE, count=1, attempt=1),
    "que by resend, folder in run": Row(retried, RUN, QUE, count=1, attempt=1),
    "que by recover, folder in run": Row(
        then(claimed(old), Event.RECOVER, count=1, attempt=1), RUN, QUE, 1, 1
    ),
    "que by stop, folder in run": Row(
        then(claimed(old), Event.REQUEUE, count=0, attempt=1), RUN, QUE, 0, 1
    ),
    "run, folder in que": Row(claimed(old), QUE, QUE, count=1, attempt=1),
    "run, folder nowhere": Row(claimed(new), None, QUE, 1, 1, rebuilt=True),
    "run, folder lost": Row(claimed(old), None, None, reported=True),
    "done, folder in run": Row(ended(old), RUN, DONE),
    "done, folder in que": Row(ended(old), QUE, DONE),
    "done, folder in prep": Row(ended(committed_from_prep), PREP, DONE),
    "done, folder in done": Row(ended(old), DONE, DONE),
    "relayed, folder in run": Row(ended(old, Event.RELAY, "relayed"), RUN, RELAYED),
    "err, folder in run": Row(ended(old, Event.FAIL, "said_err"), RUN, ERR),
    "dismissed, folder in err": Row(
        then(failed_before, Event.DISMISS, Role.CREATOR), ERR, DISMISSED
    ),
    "dismissed, reopened, folder in dismissed": Row(
        then(dismissed_before, Event.REOPEN, Role.CREATOR), DISMISSED, ERR
    ),
    "moved, folder in err": Row(
        then(failed_before, Event.MOVE, Role.CREATOR), ERR, RELAYED
    ),
    "moved, folder in dismissed": Row(
        then(dismissed_before, Event.MOVE, Role.CREATOR), DISMISSED, RELAYED
    ),
    "moved, folder in que": Row(then(old, Event.MOVE, Role.CREATOR), QUE, RELAYED),
    "moved, new, folder nowhere": Row(
        then(new, Event.MOVE, Role.CREATOR), None, RELAYED, rebuilt=True
    ),
    "done, folder nowhere": Row(ended(new), None, DONE, rebuilt=True),
    "done, folder lost": Row(ended(old), None, None, reported=True),
    "err, folder lost": Row(
        ended(old, Event.FAIL, "said_err"), None, None, reported=True
    ),
    "gone, folder in que": Row(then(old, Event.DISCARD, Role.CREATOR), QUE, None),
    "gone, new, folder nowhere": Row(
        then(new, Event.DISCARD, Role.CREATOR), None, None
    ),
    "gone, folder in done": Row(
        then(ended(new), Event.DISCARD, Role.CREATOR), DONE, None
    ),
    "gone, folder in err": Row(
        then(failed_before, Event.DISCARD, Role.CREATOR), ERR, None
    ),
    "nothing, folder in que": Row(old, QUE, QUE),
    "nothing, folder in err": Row(failed_before, ERR, ERR),
    "nothing, folder in prep": Row(prepared, PREP, PREP),
    "nothing, folder in run": Row(running_before, RUN, QUE, count=1, attempt=1),
    "que by requeue, folder in err": Row(requeued, ERR, QUE),
    "run after requeue, folder in err": Row(claimed(requeued), ERR, QUE, 1, 1),
    "done after requeue, folder in err": Row(ended(requeued), ERR, DONE),
    "que, a hand moved it to err": Row(new, ERR, ERR, observed=True),
    "run, a hand moved it to err": Row(claimed(old), ERR, ERR, observed=True),
    "que, a hand moved it to done": Row(new, DONE, DONE, observed=True),
    "run, a hand moved it to relayed": Row(
        claimed(old), RELAYED, RELAYED, observed=True
    ),
    "done, a hand moved it to err": Row(ended(new), ERR, ERR, observed=True),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_row_of_the_table_of_recovery(owner, row):
    msg_id = row.course(owner)
    lay(owner, msg_id, row.at)
    for _ in range(3):  # recovery of a recovery changes nothing
        owner.again()
        assert owner.spool.find(msg_id) is row.state
        if row.state in (QUE, PREP):
            message = owner.spool.read(msg_id)
            assert (message.count, message.attempt) == (row.count, row.attempt)
    events = [
        event["ev"]
        for read in history.events_after(owner.queue.journal_dir, 0)
        for event in read.events
    ]
    assert events.count(Event.OBSERVE) == row.observed + row.reported
    settled(owner)
    if row.state is None:
        assert place_of(owner, msg_id) == []
        return
    assert place_of(owner, msg_id) == [folder(row.state, msg_id)]
    if row.observed:
        return  # the folder is believed as it is
    message = owner.spool.read(msg_id)
    assert message.params == {"param1": "kept"}
    assert message.extra == ({"rebuilt": True} if row.rebuilt else {})


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_row_ends_the_same_when_recovery_has_settled(owner, row):
    msg_id = row.course(owner)
    lay(owner, msg_id, row.at)
    for _ in range(2):
        owner.again()
        owner.apply()
        assert owner.spool.find(msg_id) is row.state
    if row.state is QUE:
        message = owner.spool.read(msg_id)
        assert (message.count, message.attempt) == (row.count, row.attempt)
    owner.stop()
    assert stopped_cleanly(owner.queue)
    assert check.check(owner.queue) == []
    owner.open()
    assert owner.spool.find(msg_id) is row.state
    settled(owner)


def test_what_is_lost_is_reported_once(owner):
    msg_id = ended(old)(owner)
    lay(owner, msg_id, None)
    owner.again()
    assert [msg_id in one for one in owner.opened.reports] == [True]
    owner.again()
    assert owner.opened.reports == []


def test_the_due_of_a_retry_survives(owner):
    msg_id = retried(owner)
    lay(owner, msg_id, RUN)
    owner.again()
    assert owner.spool.entries[msg_id].due == 5.0
    owner.apply()
    assert owner.spool.read(msg_id).due == 5.0


def test_a_change_that_keeps_the_size_of_msg_is_not_taken_for_written(owner):
    msg_id = then(then(new, Event.RESCHEDULE, due=5.0), Event.RESCHEDULE, due=4.0)(
        owner
    )
    owner.spool.settle_all()
    owner.spool.reschedule(msg_id, 7.0)
    owner.spool.commit()
    owner.again()
    owner.apply()
    assert folders.read_message(owner.queue, QUE, msg_id).due == 7.0


def test_the_facts_of_an_attempt_survive(owner):
    msg_id = ended(new)(owner)
    owner.again()
    owner.apply()
    status = folders.read_status(owner.queue, DONE, msg_id)
    assert (status["cause"], status["job_status"]) == ("done", "fine")


def test_attempts_that_are_lost_again_and_again_end_in_err(owner):
    msg_id = owner.submit(max_count=3)
    for lost in (1, 2, 3):
        owner.spool.claim(msg_id, 0)
        owner.apply()
        owner.again()
        assert owner.spool.find(msg_id) is (ERR if lost == 3 else QUE)
    owner.apply()
    status = folders.read_status(owner.queue, ERR, msg_id)
    assert (status["cause"], status["count"], status["attempt"]) == (
        "crash_limit",
        3,
        3,
    )


@pytest.mark.parametrize("way", ["crash", "checkpoint", "stop"])
def test_lost_attempts_are_counted_apart_whatever_tells_of_them(owner, way):
    """`count` has what the Ruby RQ, other hosts and resends have counted, too."""
    msg_id = owner.submit(max_count=9, count=4)
    for lost in (1, 2):
        owner.spool.claim(msg_id, 0)
        owner.apply()
        owner.again()  # its attempt is lost
        if way == "checkpoint":
            owner.checkpoint()
        if way == "stop":
            owner.stop()
            owner.open()
        message = owner.spool.read(msg_id)
        assert (message.lost_attempts, message.count) == (lost, 4 + lost)
    owner.stop()
    stored = folders.read_message(owner.queue, QUE, msg_id)
    assert (stored.lost_attempts, stored.count) == (2, 6)


@pytest.mark.parametrize("written", [None, "many", -1, True, [3], 2**31])
def test_a_message_from_before_lost_attempts_were_counted_is_read(owner, written):
    msg_id = new(owner)
    owner.stop()
    file = owner.queue.message(QUE, msg_id) / "msg"
    fields = json.loads(file.read_text())
    assert "lost_attempts" not in fields
    file.write_text(json.dumps({**fields, "lost_attempts": written}))
    owner.open()
    owner.spool.claim(msg_id, 0)
    owner.apply()
    owner.again()
    assert owner.spool.read(msg_id).lost_attempts == 1


def test_riders_end_with_their_leader_in_one_line(owner):
    leader, *riders = [owner.submit() for _ in range(3)]
    owner.apply()
    owner.spool.claim(leader, 0)
    facts = {"cause": "done", "text": "", "outcome": "done"}
    record = owner.spool.fire(
        leader, Event.FINISH, Role.QUEUE, facts=facts, riders=riders, rides="http://l"
    )
    for one in riders:
        owner.spool.ride(one, Event.FINISH, record)
    owner.spool.commit()
    owner.again()
    settled(owner)
    for one in riders:
        assert owner.spool.find(one) is DONE
        assert owner.spool.read(one).dup == "http://l"
        status = folders.read_status(owner.queue, DONE, one)
        assert status["job_status"] == "duplicate http://l"


def test_an_uncommitted_group_never_happened(owner):
    kept = new(owner)
    lost = owner.submit()
    owner.spool.claim(kept, 0)
    owner.again()
    assert owner.spool.find(kept) is QUE
    assert owner.spool.find(lost) is None
    assert owner.spool.read(kept).attempt == 0


def test_a_claim_that_went_ahead_of_the_journal_is_counted(owner):
    msg_id = new(owner)
    owner.apply()
    owner.spool.claim(msg_id, 0)
    owner.spool.settle(msg_id)
    owner.again()
    message = owner.spool.read(msg_id)
    assert (message.count, message.attempt) == (1, 1)


# ---- ids


def test_ids_are_never_given_again_when_the_clock_goes_back(tmp_path):
    clock = Clock()
    owner = Owner(tmp_path, clock)
    seen = set()
    for turn, step in enumerate((0.0, -3600.0, -1e6, 0.0, 5.0, -1e8)):
        clock.now += step
        owner.open()
        given = [owner.spool.new_id() for _ in range(1500)]
        assert not seen.intersection(given)
        seen.update(given)
        if turn % 2:
            owner.stop()  # with no event at all, the next start knows of this one
        else:
            owner.crash()


def test_starts_go_up_whatever_the_clock_says(tmp_path):
    clock = Clock()
    owner = Owner(tmp_path, clock)
    starts = []
    for ending in (owner.crash, owner.stop, owner.crash, owner.stop):
        clock.now -= 1000.0
        owner.open()
        starts.append(owner.spool.journal.start)
        owner.submit()
        owner.spool.commit()
        ending()
    assert starts == sorted(set(starts))


# ---- clean and unclean ends


def test_after_a_clean_stop_the_folders_are_believed(owner):
    to_err, to_go, to_edit, from_err = (new(owner) for _ in range(4))
    owner.spool.claim(from_err, 0)
    owner.end(from_err, Event.FAIL)
    owner.apply()
    owner.stop()
    lay(owner, to_err, ERR)
    lay(owner, to_go, None)
    lay(owner, from_err, QUE)
    msg = owner.queue.message(QUE, to_edit) / "msg"
    msg.write_bytes(orjson.dumps({**orjson.loads(msg.read_bytes()), "param1": "new"}))
    owner.open()
    assert owner.opened.clean
    found = [owner.spool.find(one) for one in (to_err, to_go, to_edit, from_err)]
    assert found == [ERR, None, QUE, QUE]
    assert owner.spool.read(to_edit).params == {"param1": "new"}
    assert owner.spool.claim(to_edit, 0).params == {"param1": "new"}
    settled(owner)


def test_after_any_other_end_the_journal_is_replayed(owner):
    removed, moved = new(owner), then(new, Event.DISCARD, Role.CREATOR)(owner)
    owner.apply()
    owner.crash()
    assert not stopped_cleanly(owner.queue)
    lay(owner, removed, None)
    lay(owner, moved, QUE)
    owner.open()
    assert not owner.opened.clean
    assert owner.spool.find(removed) is QUE
    assert owner.spool.find(moved) is None
    settled(owner)


def test_a_stop_that_was_cut_short_is_no_clean_end(owner):
    """All segments are sealed, and the checkpoint is missing or old."""
    ids = [ended(new)(owner), new(owner)]
    journal, start = owner.spool.journal.journal_id, owner.spool.journal.start
    owner.apply()
    owner.spool.journal.close()
    owner.crash()
    assert history.active_segments(owner.queue.journal_dir) == []
    assert not stopped_cleanly(owner.queue)
    owner.clock.now -= 1e6
    owner.open()
    assert owner.spool.journal.journal_id == journal
    assert owner.spool.journal.start == start + 1
    assert owner.spool.journal.position.seq == 4
    assert [owner.spool.find(one) for one in ids] == [DONE, QUE]
    settled(owner)


def test_a_stop_that_was_cut_short_after_a_checkpoint_is_replayed(owner):
    old(owner)
    ended(new)(owner)
    owner.spool.commit()
    owner.spool.journal.close()
    owner.crash()
    owner.open()
    assert owner.spool.counts.of(DONE) == 1
    settled(owner)
    seqs = [
        event["seq"]
        for read in history.events_after(owner.queue.journal_dir, 0)
        for event in read.events
    ]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize("content", [None, b"", b"{", b"{}", b"\0" * 100])
def test_a_checkpoint_that_cannot_be_read_is_no_checkpoint(owner, content):
    ids = [ended(new)(owner), old(owner), new(owner)]
    owner.crash()
    owner.queue.checkpoint.unlink()
    if content is not None:
        owner.queue.checkpoint.write_bytes(content)
    owner.open()
    assert [owner.spool.find(one) for one in ids] == [DONE, QUE, QUE]
    settled(owner)


@pytest.mark.parametrize("content", [None, b"", b"{", b"{}", b"\0" * 100])
def test_after_a_clean_stop_too(owner, content):
    ids = [ended(new)(owner), new(owner)]
    owner.stop()
    owner.queue.checkpoint.unlink()
    if content is not None:
        owner.queue.checkpoint.write_bytes(content)
    owner.open()
    assert [owner.spool.find(one) for one in ids] == [DONE, QUE]
    settled(owner)


@pytest.mark.parametrize("name", [b"seq", b"done", b"offset", b"start"])
def test_a_checkpoint_with_a_changed_bit_is_no_checkpoint(owner, name, caplog):
    ids = [ended(new)(owner), old(owner), new(owner)]
    owner.crash()
    good = bytearray(owner.queue.checkpoint.read_bytes())
    good[good.index(b'"%b":' % name) + len(name) + 3] ^= 2  # a digit, to another
    owner.queue.checkpoint.write_bytes(good)
    assert not stopped_cleanly(owner.queue)
    owner.open()
    assert "the checkpoint cannot be believed" in caplog.text
    assert [owner.spool.find(one) for one in ids] == [DONE, QUE, QUE]
    settled(owner)


def half_prepared(owner, content=None):
    """Leave in prep what a crash makes of a message that is being prepared."""
    msg_id = owner.spool.new_id()
    made = owner.queue.message(PREP, msg_id)
    made.mkdir(mode=0o750)
    if content is not None:
        (made / "msg").write_bytes(content)
        (made / "msg").chmod(0o640)
    return msg_id


@pytest.mark.parametrize("content", [None, b"", b"\0" * 90, b'{"dest":"q","par'])
def test_what_a_crash_left_half_prepared_is_removed_by_the_next_start(owner, content):
    kept = a_message(owner.spool.new_id())
    owner.spool.prepare(kept)
    half = half_prepared(owner, content)
    owner.again()
    assert owner.spool.find(half) is None
    assert owner.spool.find(kept.msg_id) is PREP
    settled(owner)
    owner.again()
    assert (owner.spool.find(half), owner.spool.find(kept.msg_id)) == (None, PREP)
    settled(owner)


def test_what_cannot_be_read_in_prep_may_be_whole_and_stays(owner):
    msg_id = half_prepared(owner)
    os.mkdir(owner.queue.message(PREP, msg_id) / "msg")
    owner.again()
    assert owner.spool.find(msg_id) is PREP


def test_what_a_person_left_in_prep_after_a_clean_stop_stays(owner):
    owner.stop()
    owner.open()
    msg_id = owner.spool.new_id()
    owner.stop()
    owner.queue.message(PREP, msg_id).mkdir()
    owner.open()
    assert owner.spool.find(msg_id) is PREP


def test_a_torn_message_of_a_transaction_waits_for_its_decision(owner):
    txn = decisions.open_one(owner.spool, None, 60.0)
    message = a_message(owner.spool.new_id())
    owner.spool.prepare_in(txn.txn_id, message)
    owner.checkpoint()
    (owner.queue.message(PREP, message.msg_id) / "msg").write_bytes(b"")
    owner.again()
    assert owner.spool.find(message.msg_id) is PREP
    assert message.msg_id in owner.spool.txns.get(txn.txn_id).members


def test_a_queue_has_one_owner(owner):
    with pytest.raises(Refused, match="another process runs queue"):
        open_spool(owner.queue)
    with pytest.raises(Refused):
        check.check(owner.queue)


def test_what_was_on_its_way_out_is_removed_at_the_start(owner):
    half = owner.queue.path / "gone" / "20270115.0800.00.000.1"
    (half / "attach").mkdir(parents=True)
    (half / "attach" / "x").write_bytes(b"x")
    owner.again()
    owner.spool.settle_some(1.0)
    assert os.listdir(owner.queue.path / "gone") == []


def test_the_lease_of_a_queue_names_its_place(tmp_path):
    one, other = Owner(tmp_path / "1"), Owner(tmp_path / "2")
    assert prefix_of(one.queue, "j") != prefix_of(other.queue, "j")


# ---- a start that lacks descriptors


def test_an_attempt_is_not_taken_back_by_who_cannot_read_its_message(owner):
    """Of the message nothing is known then: it must not go to err."""
    msg_id = claimed(old)(owner)
    owner.apply()
    with no_descriptors(), pytest.raises(Unread, match="Too many open files"):
        losing.recover(owner.spool, msg_id, False, losing.Lost(Cause.CRASH))
    assert owner.spool.find(msg_id) is RUN
    losing.recover(owner.spool, msg_id, False, losing.Lost(Cause.CRASH))
    assert owner.spool.find(msg_id) is QUE


def test_when_a_message_is_due_is_not_told_by_who_cannot_read_it(owner):
    msg_id = old(owner)
    entry = owner.spool.entries[msg_id]
    due = entry.due
    with no_descriptors(), pytest.raises(Unread, match="Too many open files"):
        recovery_apply.read_due(owner.spool, msg_id, entry)
    recovery_apply.read_due(owner.spool, msg_id, entry)
    assert entry.due == due
