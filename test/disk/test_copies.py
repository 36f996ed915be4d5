"""Queues whose directories were copied or restored: their keys, and how they start."""

import os
import shutil

import orjson
import pytest
from harness.limits import no_descriptors
from harness.spool import NOW, Owner, a_message

from rq.errors import Refused
from rq.files import disk
from rq.journal import history, line, mark, sealing
from rq.journal.segment_file import read_segment
from rq.layout import Root
from rq.spark import journal_plan
from rq.spool import check, outbox
from rq.words.states import Event, State

HOOK = {"dest": "webhook", "message": {"dest": "webhook", "param1": "http://h/1"}}


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path / "first")
    one.open()
    yield one
    if one.is_open:
        one.crash()


def copied(owner, path):
    """Return a copy of a queue's directory, as `cp -a` makes it."""
    copy = Owner(path, owner.clock)
    shutil.rmtree(copy.queue.path)
    shutil.copytree(owner.queue.path, copy.queue.path, symlinks=True)
    return copy


def ended(owner, param2):
    """Let a message end that owes a webhook; return its place and its key."""
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    message = {**HOOK["message"], "param2": param2}
    owner.end(msg_id, Event.FINISH, out=[{**HOOK, "message": message}])
    owner.spool.commit()
    of, one = list(owner.spool.owed.items())[-1]
    return of, one.key


# ---- keys


@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
def test_a_copy_gives_no_new_message_the_key_of_another(owner, tmp_path, end):
    owner.apply()
    end(owner)
    copy = copied(owner, tmp_path / "second")
    owner.open()
    place, key = ended(owner, "of the first")
    owner.crash()
    copy.open()
    try:
        place_there, key_there = ended(copy, "of the copy")
    finally:
        copy.crash()
    assert place_there == place
    assert key_there != key


def test_the_same_message_owed_again_in_a_copy_is_another_one(owner, tmp_path):
    """It ended twice, once in each: both ends are told."""
    keys = {outbox.stamped(HOOK)["bits"] for _ in range(100)}
    assert len(keys) == 100
    assert {key[16:] for key in keys} == {next(iter(keys))[16:]}


def test_the_digest_in_a_key_is_that_of_the_message():
    there = {key: HOOK["message"][key] for key in reversed(HOOK["message"])}
    one, same = outbox.stamped(HOOK), outbox.stamped({**HOOK, "message": there})
    other = outbox.stamped({**HOOK, "message": {**there, "param2": "x"}})
    assert one["bits"][16:] == same["bits"][16:] != other["bits"][16:]


def without_bits(owner):
    """Let all that is written be as an earlier version wrote it."""
    for path in [*owner.queue.journal.glob("0*"), owner.queue.checkpoint]:
        if not path.exists():
            continue
        lines = path.read_bytes().rstrip(b"\0").splitlines()
        head = orjson.loads(lines[0])
        seed = line.seed(head["journal"], head.get("segment", ""))
        if path == owner.queue.checkpoint:
            seed = line.seed("", "checkpoint")
        changed = [orjson.loads(one) for one in lines]
        for one in changed:
            one.pop("crc")
            for out in one.get("out", ()):
                del out["bits"]
            if "owed" in one:
                one["owed"] = [entry[:7] for entry in one["owed"]]
        data = [line.sealed(line.body(one), seed) for one in changed]
        path.write_bytes(b"".join(data))


@pytest.mark.parametrize("how", ["journal", "checkpoint"])
def test_an_entry_of_an_earlier_version_keeps_its_key_for_ever(owner, how):
    ended(owner, "old")
    if how == "checkpoint":
        owner.checkpoint()
    owner.crash()
    without_bits(owner)
    owner.open()
    [(of, one)] = owner.spool.owed.items()
    assert one.key == f"{owner.spool.journal.journal_id}/{of[0]}/{of[1]}"
    owner.checkpoint()
    owner.again()
    assert [known.key for known in owner.spool.owed.values()] == [one.key]
    assert one.since == NOW


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("cafe/17/0", (17, 0)),
        ("cafe/17/2/00ff", (17, 2)),
        ("cafe//", None),
        ("cafe/17", None),
        ("", None),
        ("²/²/²", None),
    ],
)
def test_the_place_in_a_key(key, place):
    assert outbox.place_of(key) == place
    if place is not None:
        journal, _, rest = key.partition("/")
        bits = rest.split("/")[2] if rest.count("/") == 2 else ""
        assert outbox.key(journal, place, bits) == key


# ---- directories that are not where their journal was written


def brought_back(owner, backup):
    """Put a backup in the place of a queue's directory."""
    shutil.rmtree(owner.queue.path)
    shutil.copytree(backup.queue.path, owner.queue.path, symlinks=True)


def rewritten(owner, backup):
    """As `rsync -a --delete` does it: what has the same size and time stays, what differs
    is written beside it and renamed over it."""
    source, target = backup.queue.path, owner.queue.path
    for one in sorted(target.rglob("*"), reverse=True):
        there = source / one.relative_to(target)
        if not there.exists():
            one.rmdir() if one.is_dir() else one.unlink()
    for one in sorted(source.rglob("*")):
        here = target / one.relative_to(source)
        if one.is_dir():
            here.mkdir(exist_ok=True)
        elif not here.exists() or looks(here) != looks(one):
            shutil.copy2(one, f"{here}.new")
            os.rename(f"{here}.new", here)


def looks(path):
    return path.stat().st_size, path.stat().st_mtime_ns


@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
def test_a_copy_waits_for_a_word_and_changes_nothing_on_disk(owner, tmp_path, end):
    waiting, running = owner.submit(), owner.submit()
    owner.spool.claim(running, 0)
    ended(owner, "owed")
    owner.apply()
    end(owner)
    copy = copied(owner, tmp_path / "second")
    before = snapshot(copy)
    copy.open()
    assert "`rq restore accept q`" in copy.opened.restored
    states = {i: one.state for i, one in copy.spool.entries.items()}
    assert (states[waiting], states[running]) == (State.QUE, State.QUE)
    assert [one.message["param2"] for one in copy.spool.owed.values()] == ["owed"]
    copy.spool.commit()
    copy.crash()
    assert snapshot(copy) == before
    owner.open()
    assert owner.opened.restored is None


def snapshot(owner):
    """Return each file of a queue with what it holds."""
    return {
        path: path.read_bytes()
        for path in sorted(owner.queue.path.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("back", [brought_back, rewritten])
@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
@pytest.mark.parametrize("then", ["an end", "another start", "nothing but lines"])
def test_an_older_state_in_its_place_waits_for_a_word(owner, tmp_path, back, end, then):
    owner.submit()
    owner.apply()
    if then != "nothing but lines":
        end(owner)
    backup = copied(owner, tmp_path / "backup")
    if then != "nothing but lines":
        owner.open()
    owner.submit()
    owner.apply()
    if then == "another start":
        owner.stop()
        owner.open()
    end(owner)
    back(owner, backup)
    owner.open()
    assert owner.opened.restored is not None


def hard_links(owner, path):
    """Return a copy whose files are those of the first (`cp -al`)."""
    copy = Owner(path, owner.clock)
    shutil.rmtree(copy.queue.path)
    shutil.copytree(owner.queue.path, copy.queue.path, copy_function=os.link)
    return copy


def test_a_copy_of_hard_links_waits_for_a_word(owner, tmp_path):
    owner.submit()
    owner.apply()
    owner.stop()
    copy = hard_links(owner, tmp_path / "second")
    copy.open()
    assert copy.opened.restored is not None
    copy.crash()


def test_a_mark_that_cannot_be_read_now_is_not_taken_for_none(owner):
    # Without it a copy would go on under the id of the first one's journal.
    owner.crash()
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        mark.read(owner.queue.journal_dir)


@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
def test_a_directory_that_was_renamed_starts_as_ever(owner, tmp_path, end):
    msg_id = owner.submit()
    owner.apply()
    end(owner)
    (tmp_path / "there/queue").mkdir(parents=True)
    owner.queue.path.rename(tmp_path / "there/queue/q")
    moved = Owner(tmp_path / "there", owner.clock)
    moved.open()
    assert moved.opened.restored is None
    assert moved.spool.find(msg_id) is State.QUE
    moved.crash()


def test_rights_and_times_that_change_and_other_boots_are_no_copy(owner, monkeypatch):
    owner.submit()
    owner.apply()
    owner.crash()
    for path in owner.queue.path.rglob("*"):
        os.chmod(path, 0o700)
        os.utime(path, (1, 1))
    monkeypatch.setattr("rq.proc.processes.boot_id", lambda: "another boot")
    owner.open()
    assert owner.opened.restored is None


@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
def test_a_queue_of_an_earlier_version_has_no_mark_and_starts(owner, tmp_path, end):
    msg_id = owner.submit()
    owner.apply()
    end(owner)
    without_marks(owner)
    old = copied(owner, tmp_path / "second")
    for one in (owner, old):
        one.open()
        assert one.opened.restored is None
        assert one.spool.find(msg_id) is State.QUE
        assert mark.read(one.queue.journal_dir).journal == one.spool.journal.journal_id
        one.crash()


def without_marks(owner):
    """Leave the directory as an earlier version would have."""
    owner.queue.journal_dir.mark.unlink()
    for path in owner.queue.journal.glob("0*"):
        head, _, rest = path.read_bytes().partition(b"\n")
        header = orjson.loads(head)
        for name in ("crc", "made"):
            del header[name]
        seed = line.seed(header["journal"], header["segment"])
        path.write_bytes(line.sealed(line.body(header), seed) + rest)


# ---- the word


def accept(owner, copy):
    mark.accept(
        owner.queue.journal_dir,
        owner.spool.dir_fd,
        owner.spool.journal.journal_id,
        copy=copy,
    )
    owner.crash()
    return owner.open()


@pytest.mark.parametrize("copy", [False, True], ids=["the same", "a copy"])
@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
def test_after_the_word_all_is_there_and_goes_on(owner, tmp_path, end, copy):
    waiting, running = owner.submit(), owner.submit()
    owner.spool.claim(running, 0)
    _, key = ended(owner, "owed")
    owner.spool.submit(a_message(keyed := owner.spool.new_id()), key="j/1/0")
    owner.apply()
    first, seq = owner.spool.journal.journal_id, owner.spool.journal.seq
    end(owner)
    other = copied(owner, tmp_path / "second")
    other.open()
    spool = accept(other, copy)
    try:
        for _ in range(3):
            assert other.opened.restored is None
            assert (spool.journal.journal_id == first) is not copy
            assert spool.journal.seq > seq
            states = [spool.find(one) for one in (waiting, running, keyed)]
            assert states == [State.QUE] * 3
            assert spool.keys["j/1/0"][0] == keyed
            assert [one.key for one in spool.owed.values()] == [key]
            other.submit()
            spool.commit()
            spool = other.again()
        other.apply()
        number = len(spool.entries)
        other.stop()
        assert check.check(other.queue) == []
        assert len(other.open().entries) == number
        assert other.spool.counts.of(State.QUE) == number
    finally:
        other.crash()


def test_the_history_of_a_copy_lies_apart_and_misses_no_event(owner, tmp_path):
    owner.submit()
    owner.apply()
    last, first = owner.spool.journal.seq, owner.spool.journal.journal_id
    owner.crash()
    other = copied(owner, tmp_path / "second")
    other.open()
    accept(other, True)
    second = other.spool.journal.journal_id
    other.submit()
    other.apply()
    other.stop()
    seen = {name: numbers(other.queue, name) for name in (first, second)}
    assert seen[first] == list(range(1, last + 1))
    assert seen[second] == list(range(last + 1, seen[second][-1] + 1))


@pytest.mark.parametrize("name", ["a", "z"])  # before and after q
def test_spark_reads_a_copied_journal_once_where_it_is_written(owner, name):
    """Each copy holds the first events, and only one goes on."""
    owner.submit()
    owner.apply()
    owner.stop()
    root = Root(owner.queue.path.parents[1])
    copy = Owner(root.path, owner.clock, name)
    shutil.rmtree(copy.queue.path)
    shutil.copytree(owner.queue.path, copy.queue.path)
    copy.open()
    accept(copy, True)
    copy.submit()
    copy.apply()
    owner.open()
    owner.submit()
    owner.apply()
    first, second = (one.spool.journal.journal_id for one in (owner, copy))
    ends = {first: owner.spool.journal.seq + 1, second: copy.spool.journal.seq + 1}
    for one in (owner, copy):
        one.stop()
    found = journal_plan.look(root)
    assert journal_plan.latest(found, {}) == ends
    assert journal_plan.names_of(root) == {first: "q", second: name}


def numbers(queue, journal):
    sealed = history.sealed_segments(queue.journal_dir, journal)
    return [e["seq"] for one in sealed for e in read_segment(one).events]


@pytest.mark.parametrize("copy", [False, True], ids=["the same", "a copy"])
def test_a_queue_that_is_copied_again_waits_again(owner, tmp_path, copy):
    owner.submit()
    owner.apply()
    owner.stop()
    second = copied(owner, tmp_path / "second")
    second.open()
    accept(second, copy)
    second.submit()
    second.apply()
    second.crash()
    third = copied(second, tmp_path / "third")
    third.open()
    assert third.opened.restored is not None
    assert accept(third, False).counts.of(State.QUE) == 2
    third.crash()


def test_check_tells_of_a_copy_and_mends_nothing_before_the_word(owner, tmp_path):
    owner.submit()
    owner.apply()
    owner.crash()
    other = copied(owner, tmp_path / "second")
    assert "copied" in [one.kind for one in check.check(other.queue)]
    before = snapshot(other)
    with pytest.raises(Refused, match="rq restore accept"):
        check.check(other.queue, fix=True)
    assert snapshot(other) == before


def test_retention_leaves_what_recovery_reads_of_the_journal_before(owner, tmp_path):
    kept = owner.submit()
    owner.spool.commit()  # no checkpoint, and no folder: its line alone tells of it
    owner.crash()
    other = copied(owner, tmp_path / "second")
    other.open()
    accept(other, True)
    other.submit()
    other.spool.commit()
    active = other.spool.journal.journal_id
    sealing.forget(other.queue.journal_dir, active, 0, size=0)
    assert other.again().find(kept) is State.QUE
    other.crash()


# ---- what tells a file from a copy

SAME, LATER, OTHER = (7, 1), (7, 2), (8, 1)


@pytest.mark.parametrize(
    ("kind", "seen", "same"),
    [
        ("ext4", SAME, True),
        ("ext4", LATER, False),
        ("ext4", OTHER, False),
        ("ext4", (7, None), True),
        ("ext4", (8, None), False),
        ("nfs4", (8, None), False),
        ("overlay", OTHER, True),
        ("overlay", LATER, False),
        ("fuse.sshfs", (8, None), True),
        ("tmpfs", (8, 2), True),
    ],
)
def test_by_what_a_file_is_known_again(kind, seen, same):
    assert disk.is_same(SAME, seen, kind) is same


def test_a_file_keeps_what_it_is_known_by_and_its_copy_has_none_of_it(tmp_path):
    path = tmp_path / "a"
    path.write_text("x")
    first = made(path)
    path.rename(tmp_path / "b")
    path.write_text("x")
    assert made(tmp_path / "b") == first
    assert made(path)[0] != first[0]


def made(path):
    with path.open("rb") as file:
        return disk.identity(file.fileno())
