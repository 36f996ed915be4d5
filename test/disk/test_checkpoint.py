"""Checkpoint, index, outbox and keys: what recovery need not read again."""

import gc
import tracemalloc

import orjson
import pytest
from harness.limits import no_descriptors
from harness.spool import NOW, Clock, Owner, a_message

from rq.errors import Refused, WrongState
from rq.files.durable import crash_points
from rq.queues.housekeeping import is_old
from rq.spool import checkpoint, folders, index
from rq.spool.store import PREP_SECONDS
from rq.words.states import Event, Role, State

OUT = [
    {"dest": "webhook", "message": {"dest": "webhook", "param1": "http://h/1"}},
    {"dest": "webhook", "message": {"dest": "webhook", "param1": "http://h/2"}},
]


def write_index(owner):
    journal = owner.spool.journal
    lines = index.lines(
        journal.journal_id,
        journal.position.seq,
        owner.spool.entries,
        owner.spool.keys,
        owner.spool.txns,
    )
    writing = index.Writing(owner.spool.dir_fd, lines)
    while writing.write_slice(1):
        pass
    writing.finish()


def owing(owner):
    """Return a message that has ended and owes two deliveries."""
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    owner.end(msg_id, out=OUT)
    owner.spool.commit()
    return msg_id


# ---- checkpoint


def test_a_checkpoint_comes_back_as_it_was(owner):
    running = owner.submit()
    owner.spool.claim(running, 0)
    owing(owner)
    owner.apply()
    point = checkpoint.begin(owner.spool, "boot-1")
    checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    read = checkpoint.read(owner.queue)
    assert read.whole().encode() == point.whole().encode()
    assert read.running == {running: 1}
    assert (read.seq, read.clean) == (owner.spool.journal.position.seq, False)
    assert read.counts.of(State.DONE) == 1
    assert len(read.owed) == 2


@pytest.mark.parametrize("obstacle", ["turn", "file"])
def test_a_checkpoint_that_a_file_keeps_from_being_is_no_failure_of_the_disk(
    owner, obstacle
):
    owner.submit()
    owner.apply()
    turn = checkpoint.turn_file(owner.queue)
    place = turn if obstacle == "turn" else owner.queue.checkpoint
    place.unlink(missing_ok=True)
    place.mkdir()
    point = checkpoint.begin(owner.spool, "boot-1")
    with pytest.raises(Refused, match=f"no checkpoint can be written: .*{place.name}"):
        checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    place.rmdir()
    checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    assert checkpoint.read(owner.queue).seq == point.seq


def test_a_checkpoint_waits_for_the_folders_of_its_events_only(owner):
    early = owner.submit()
    owner.spool.commit()
    point = checkpoint.begin(owner.spool, "boot")
    late = owner.submit()
    owner.spool.commit()
    assert owner.spool.lagging.barrier == {early}
    owner.spool.settle(early)
    assert owner.spool.lagging.barrier == set()
    checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    owner.again()
    assert [owner.spool.find(one) for one in (early, late)] == [State.QUE] * 2


def test_counts_are_right_without_listing_after_a_checkpoint(owner):
    for event in (Event.FINISH, Event.RELAY, Event.FAIL):
        for point in (True, False):
            msg_id = owner.submit()
            owner.spool.claim(msg_id, 0)
            owner.end(msg_id, event)
            if point:
                owner.checkpoint()
    owner.spool.commit()
    owner.again()
    owner.apply()
    assert owner.spool.counts.to_json() == folders.count(owner.queue).to_json()
    assert owner.spool.counts.of(State.DONE) == 2


def test_an_attempt_that_began_before_the_checkpoint_is_not_forgotten(owner):
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    owner.checkpoint()
    owner.again()
    message = owner.spool.read(msg_id)
    assert (message.count, message.attempt) == (1, 1)


# ---- index


def test_an_index_comes_back_as_it_was(owner):
    ids = [owner.submit(due=n) for n in range(3)]
    owner.spool.submit(a_message(owner.spool.new_id()), key="j/1/0")
    owner.apply()
    write_index(owner)
    read = index.read(owner.queue)
    assert read.seq == 4
    assert read.keys["j/1/0"][1] == NOW
    assert {i: entry.due for i, entry in read.entries.items() if i in ids} == dict(
        zip(ids, [0.0, 1.0, 2.0], strict=True)
    )


MOST_BYTES = (
    400  # its id, its moments, what the owner keeps of it: of each of a million
)


def test_a_start_keeps_few_bytes_of_a_waiting_message(owner):
    ids = [owner.submit(due=n) for n in range(2000)]
    write_index(owner)
    owner.stop()
    tracemalloc.start()
    try:
        owner.open()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept / len(ids) <= MOST_BYTES
    assert owner.spool.live() == ids  # as they came


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(
            path.read_bytes().replace(b'"version":1', b'"version":9')
        ),
        lambda path: path.write_bytes(b"\0" * 300),
        lambda path: path.write_bytes(b"[]\n"),
        lambda path: path.write_bytes(
            path.read_bytes().replace(b'"journal":"', b'"journal":"x')
        ),
        lambda path: path.write_bytes(path.read_bytes().replace(b",3.0,", b",7.0,")),
        lambda path: path.write_bytes(
            path.read_bytes().replace(b'{"end":', b'{"keys":[]}\n{"end":')
        ),
    ],
    ids=[
        "missing",
        "empty",
        "torn",
        "newer",
        "zeros",
        "nonsense",
        "foreign",
        "bit",
        "another type",
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_without_a_good_index_the_folders_are_read(owner, spoil, clean):
    ids = [owner.submit(due=n) for n in range(5)]
    owner.spool.submit(a_message(keyed := owner.spool.new_id()), key="j/1/0")
    owner.checkpoint()
    write_index(owner)
    if clean:
        owner.stop()
    else:
        owner.crash()
    spoil(owner.queue.index)
    owner.open()
    assert [owner.spool.entries[one].due for one in ids] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert owner.spool.keys["j/1/0"][0] == keyed


@pytest.mark.parametrize("content", [b"", b"\0" * 9, b"5\n", b"[]\n", b"{}\n"])
def test_an_index_that_is_none_follows_no_event(owner, content):
    # Retention asks for it each hour, before it removes history.
    owner.queue.index.write_bytes(content)
    assert index.seq_of(owner.queue, owner.spool.journal_id) is None


def test_without_an_index_the_lines_are_read_when_none_is_missing(owner):
    ids = [owner.submit(due=n) for n in range(1, 4)]
    owner.checkpoint()
    assert not owner.queue.index.exists()
    for msg_id in ids:  # nobody looks into it before its claim
        (owner.queue.message(State.QUE, msg_id) / "msg").write_bytes(b"")
    owner.again()
    assert [owner.spool.entries[one].due for one in ids] == [1.0, 2.0, 3.0]
    assert [owner.spool.find(one) for one in ids] == [State.QUE] * 3


def test_an_index_older_than_the_checkpoint_is_brought_up_to_it(owner):
    stays, moves, runs, goes = (owner.submit(due=1) for _ in range(4))
    owner.apply()
    write_index(owner)
    owner.spool.reschedule(moves, 7.0)
    message = owner.spool.claim(runs, 0)
    owner.spool.fire(
        runs, Event.RETRY, Role.QUEUE, message=message.with_(count=1, due=9.0)
    )
    owner.spool.fire(goes, Event.DISCARD, Role.CREATOR)
    owner.spool.submit(a_message(new := owner.spool.new_id(), due=3), key="j/2/0")
    owner.checkpoint()
    before = {i: owner.spool.entries[i].seq for i in (stays, moves, runs, new)}
    owner.again()
    entries = owner.spool.entries
    assert {i: entries[i].due for i in before} == {
        stays: 1.0,
        moves: 7.0,
        runs: 9.0,
        new: 3.0,
    }
    assert {i: entries[i].seq for i in before} == before
    assert (entries[runs].count, entries[runs].attempt) == (1, 1)
    assert owner.spool.find(goes) is None
    assert owner.spool.keys["j/2/0"][0] == new


class Killed(Exception):
    """Stands for a kill -9 at a point of the code."""


def test_a_stop_that_is_cut_short_behind_its_index_hides_no_later_key(
    owner, monkeypatch
):
    def kill(point):
        if point == "index:after-rename":
            raise Killed

    owner.submit()
    owner.apply()
    monkeypatch.setattr(crash_points, "hook", kill)
    with pytest.raises(Killed):
        checkpoint.stop(owner.spool)
    monkeypatch.undo()
    owner.again()
    # No later event may have a number that the index counts as known.
    owner.spool.submit(a_message(new := owner.spool.new_id()), key="j/2/0")
    owner.submit()
    owner.checkpoint()
    owner.again()
    assert owner.spool.keys["j/2/0"][0] == new


def test_the_order_of_arrival_survives_a_clean_stop(owner):
    ids = [owner.submit(due=1) for _ in range(5)]
    owner.apply()
    owner.stop()
    owner.open()
    entries = owner.spool.entries
    assert sorted(ids, key=lambda one: entries[one].seq) == ids


# ---- what is owed to others


@pytest.mark.parametrize("how", ["crash", "checkpoint", "stop"])
def test_what_is_owed_survives_until_it_is_sent(owner, how):
    owing(owner)
    key = next(iter(owner.spool.owed))

    def restart():
        if how == "checkpoint":
            owner.checkpoint()
        if how == "stop":
            owner.apply()
            owner.stop()
            owner.open()
        else:
            owner.again()

    restart()
    assert [one.message["param1"] for one in owner.spool.owed.values()] == [
        "http://h/1",
        "http://h/2",
    ]
    owner.spool.sent(*key)
    owner.spool.commit()
    restart()
    assert list(owner.spool.owed) == [(key[0], 1)]
    owner.spool.sent(key[0], 1)
    owner.spool.commit()
    restart()
    assert owner.spool.owed == {}


def test_a_delivery_that_was_not_written_down_is_made_again(owner):
    owing(owner)
    key = next(iter(owner.spool.owed))
    owner.spool.sent(*key)
    owner.again()
    assert key in owner.spool.owed


def test_the_key_of_a_delivery_is_the_same_after_a_restart(owner):
    owing(owner)
    before = [one.key for one in owner.spool.owed.values()]
    owner.again()
    assert [one.key for one in owner.spool.owed.values()] == before
    owner.checkpoint()
    owner.again()
    assert [one.key for one in owner.spool.owed.values()] == before


# ---- what is prepared


def test_what_is_prepared_is_kept_and_can_be_committed_after_a_restart(owner):
    msg_id = owner.spool.new_id()
    owner.spool.prepare(a_message(msg_id, param1="kept"))
    owner.again()
    owner.spool.submit(owner.spool.read(msg_id))
    owner.apply()
    assert owner.spool.read(msg_id).params == {"param1": "kept"}
    with pytest.raises(WrongState):
        owner.spool.submit(owner.spool.read(msg_id))


def test_what_nobody_commits_is_old_after_36_hours_whatever_restarts(tmp_path):
    clock = Clock()
    owner = Owner(tmp_path, clock)
    owner.open()
    msg_id = owner.spool.new_id()
    owner.spool.prepare(a_message(msg_id))
    made = owner.queue.message(State.PREP, msg_id).stat().st_mtime
    owner.again()
    assert not is_old(owner.spool, msg_id, made + PREP_SECONDS - 1)
    assert is_old(owner.spool, msg_id, made + PREP_SECONDS + 1)
    owner.spool.fire(msg_id, Event.EXPIRE, Role.QUEUE)
    owner.apply()
    owner.again()
    assert owner.spool.find(msg_id) is None
    assert folders.count(owner.queue).of(State.PREP) == 0
    owner.crash()


# ---- a queue of the ancestor


def plant(queue, place, **stale):
    there = queue.path / place
    there.mkdir(parents=True)
    fields = {"dest": "q", "due": "1800000000", "count": 0, **stale}
    (there / "msg").write_bytes(orjson.dumps(fields))
    (there / "status").write_text('{"job_status": "last words"}')


def test_a_queue_of_the_ancestor_is_adopted(tmp_path):
    owner = Owner(tmp_path)
    stale = {"status": "que", "state": "que", "path": "queue/q/prep/x", "max_count": 15}
    place = {
        State.PREP: "prep/20200101.0000.00.000.1",
        State.QUE: "que/20200101.0000.00.000.2",
        State.RUN: "run/20200101.0000.00.000.3",
        State.DONE: "done/20200101/00/00/20200101.0000.00.000.4",
        State.RELAYED: "relayed/20200101/00/00/20200101.0000.00.000.5",
        State.ERR: "err/20200101.0000.00.000.6",
        State.DISMISSED: "err/.20200101.0000.00.000.7",
    }
    for path in place.values():
        plant(owner.queue, path, **stale)
    spool = owner.open()
    for state, path in place.items():
        msg_id = path.rpartition("/")[2].removeprefix(".")
        wanted = State.QUE if state is State.RUN else state
        assert spool.find(msg_id) is wanted
        assert not stale.keys() & spool.read(msg_id).to_json().keys() - {"max_count"}
        assert spool.read(msg_id).count == (1 if state is State.RUN else 0)
    owner.apply()
    assert spool.counts.to_json() == folders.count(owner.queue).to_json()
    owner.stop()
    owner.open()
    assert owner.spool.counts.of(State.DONE) == 1
    owner.crash()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "msg is missing"),
        (b"", "msg is not JSON"),
        (b"{", "msg is not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"due": 1}', "dest"),
        (b'{"dest": "q", "due": {}}', "due is not epoch seconds"),
    ],
)
def test_a_message_in_que_that_cannot_be_read_goes_to_err(tmp_path, content, reason):
    owner = Owner(tmp_path)
    msg_id = "20200101.0000.00.000.2"
    plant(owner.queue, f"que/{msg_id}")
    msg = owner.queue.path / "que" / msg_id / "msg"
    msg.unlink()
    if content is not None:
        msg.write_bytes(content)
    owner.open()
    assert owner.spool.find(msg_id) is State.ERR
    owner.apply()
    status = folders.read_status(owner.queue, State.ERR, msg_id)
    assert status["cause"] == "bad_message"
    assert reason in status["job_status"]
    if content is not None:
        kept = owner.queue.message(State.ERR, msg_id) / "msg"
        assert kept.read_bytes() == content
    owner.crash()


def test_an_index_that_cannot_be_read_now_is_not_taken_for_none(owner):
    # It alone may know the keys of segments that are gone.
    write_index(owner)
    assert index.read(owner.queue) is not None
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        index.read(owner.queue)


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_none(owner):
    # It alone may know what is owed, and which attempt of a message was running.
    owner.checkpoint()
    assert checkpoint.read(owner.queue) is not None
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        checkpoint.read(owner.queue)


def test_a_checkpoint_is_written_where_its_queue_lies_now(owner):
    """A directory that was moved keeps its checkpoint; the one that has its name gets none."""
    owner.submit()
    owner.apply()
    there = owner.queue.path
    moved = there.with_name("moved")
    there.rename(moved)
    (there / "journal").mkdir(parents=True)
    point = checkpoint.begin(owner.spool, "boot")
    checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    assert not owner.queue.checkpoint.exists()
    (there / "journal").rmdir()
    there.rmdir()
    moved.rename(there)
    assert checkpoint.read(owner.queue).seq == owner.spool.durable_seq


def test_a_checkpoint_of_another_journal_is_not_believed(owner, tmp_path):
    """An owner that had lost its directory may have left it in the one after."""
    other = Owner(tmp_path / "other")
    other.open()
    other.submit()
    other.apply()
    point = checkpoint.begin(other.spool, "boot")
    checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    assert owner.queue.checkpoint.exists()
    assert checkpoint.read(owner.queue) is None
    other.stop()
