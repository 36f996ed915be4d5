"""The index follows journals: what is durable, in order, each line once."""

import os
import shutil
from dataclasses import replace
from itertools import islice

import pytest
from harness.spool import Owner

from rq.errors import Damaged, DiskFailed
from rq.files import durable
from rq.index.follow import Follower, Moved, Word
from rq.index.store import Place
from rq.journal import history
from rq.words.states import Event, Role


@pytest.fixture
def follower(owner):
    return Follower(owner.queue.journal_dir, Place())


def commit(owner, number=1):
    """Accept messages in a group of their own; return their ids."""
    ids = [owner.submit(param1="x") for _ in range(number)]
    owner.spool.commit()
    return ids


def accepted(follower):
    """Return the messages of which lines that are read say that they were accepted."""
    return [line["msg"] for line in follower.read() if line["ev"] == Event.COMMIT]


def say(follower, owner):
    """Let a follower hear what is durable."""
    at = owner.spool.journal.position
    follower.word = Word(journal=at.journal, seq=at.seq, segment=at.segment)


def again(follower, owner):
    """Return a follower of a process that begins at the same place."""
    return Follower(owner.queue.journal_dir, follower.at)


def test_a_line_of_the_next_group_proves_the_last(owner, follower):
    first = commit(owner, 2)
    assert accepted(follower) == []
    assert follower.has_tail
    second = commit(owner)
    assert accepted(follower) == first
    say(follower, owner)
    assert accepted(follower) == second
    assert not follower.has_tail


def test_what_was_written_and_not_synced_is_not_read(owner, follower):
    durable_ids = commit(owner)
    owner.submit()
    owner.spool.write(last=True)
    say(follower, owner)
    assert accepted(follower) == durable_ids
    assert follower.has_tail


def test_a_word_counts_for_its_segment_and_its_journal(owner, follower):
    commit(owner)
    at = owner.spool.journal.position
    for wrong in ({"journal": "0badcafe"}, {"segment": "9" * 16}, {"seq": at.seq - 1}):
        right = {"journal": at.journal, "seq": at.seq, "segment": at.segment}
        follower.word = Word(**{**right, **wrong})
        assert accepted(follower) == [], wrong


def test_each_line_is_read_once_through_seals_and_starts(owner, follower):
    ids = []
    for number in range(12):
        ids += commit(owner, 2)
        if number % 3 == 0:
            owner.spool.journal.seal()
        if number % 4 == 0:
            owner.stop()
            owner.open()
        if number % 5 == 0:
            owner.again()
    owner.stop()
    seen = []
    while lines := list(islice(follower.read(), 3)):
        seen += [line["msg"] for line in lines if line["ev"] == Event.COMMIT]
        follower = again(follower, owner)
    assert seen == ids
    owner.open()


def test_a_segment_that_is_sealed_under_its_reader_goes_on(owner, follower):
    first = commit(owner, 3)
    say(follower, owner)
    reading = follower.read()
    seen = [next(reading)["msg"]]
    owner.spool.journal.seal()
    second = commit(owner)
    say(follower, owner)
    assert seen + accepted(follower) == first + second


def test_after_a_failed_sync_the_new_segment_counts(owner, follower, monkeypatch):
    first = commit(owner)
    say(follower, owner)
    assert accepted(follower) == first
    ids = [owner.submit()]

    def fail(fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(durable, "sync_data", fail)
        with pytest.raises(DiskFailed):
            owner.spool.commit()
    assert accepted(follower) == []
    owner.spool.commit()
    ids += commit(owner)
    say(follower, owner)
    assert accepted(follower) == ids
    assert accepted(again(follower, owner)) == []


def test_what_a_crash_has_torn_is_not_read(owner, follower):
    ids = commit(owner)
    owner.submit()
    owner.spool.write(last=False)
    segment = history.active_segments(owner.queue.journal_dir)[-1].path
    data = segment.read_bytes()
    end = data.index(b"\0")
    owner.crash()
    with segment.open("r+b") as file:
        file.seek(end - 5)
        file.write(b"\0" * 5)
    owner.open()
    later = commit(owner)
    owner.stop()
    assert accepted(follower) == ids + later
    owner.open()


def test_a_restored_queue_that_ends_lower_has_moved(owner, follower, tmp_path):
    commit(owner)
    owner.stop()
    backup = tmp_path / "backup"
    shutil.copytree(owner.queue.path, backup)
    owner.open()
    commit(owner, 3)
    owner.stop()
    assert len(accepted(follower)) == 4
    shutil.rmtree(owner.queue.path)
    backup.rename(owner.queue.path)
    with pytest.raises(Moved):
        accepted(again(follower, owner))


def test_another_line_with_its_number_has_moved(owner, follower, tmp_path):
    owner.stop()
    backup = tmp_path / "backup"
    shutil.copytree(owner.queue.path, backup)
    owner.open()
    commit(owner, 2)
    owner.stop()
    assert len(accepted(follower)) == 2
    shutil.rmtree(owner.queue.path)
    backup.rename(owner.queue.path)
    other = Owner(tmp_path)
    (
        other.queue.journal / "mark"
    ).unlink()  # as a queue of an earlier version: it starts
    other.open()
    commit(other, 5)
    other.stop()
    with pytest.raises(Moved):
        accepted(again(follower, other))


def test_history_that_was_removed_is_passed_over(owner, follower):
    commit(owner)
    owner.spool.journal.seal()
    say(follower, owner)
    assert len(accepted(follower)) == 1
    commit(owner)
    owner.spool.journal.seal()
    later = commit(owner)
    owner.stop()
    for segment in history.segments(owner.queue.journal_dir)[:2]:
        segment.path.unlink()
    assert accepted(again(follower, owner)) == later
    owner.open()


def test_a_bad_line_of_history_is_damage(owner, follower):
    ids = commit(owner, 3)
    owner.spool.journal.seal()
    spoil(history.segments(owner.queue.journal_dir)[0].path, ids[1])
    seen = []
    with pytest.raises(Damaged):
        seen.extend(line["msg"] for line in follower.read())
    assert seen == ids[:1]


def test_what_was_read_of_a_segment_is_not_read_again(owner, follower):
    ids = commit(owner, 3)
    owner.spool.journal.seal()
    lines = follower.read()
    assert [line["msg"] for line in islice(lines, 2)] == ids[:2]
    spoil(history.segments(owner.queue.journal_dir)[0].path, ids[0])
    assert accepted(again(follower, owner)) == ids[2:]


def test_a_hint_that_leads_into_a_line_of_another_journal_is_none(owner, follower):
    ids = commit(owner, 3)
    owner.spool.journal.seal()
    assert accepted(follower) == ids
    elsewhere = replace(follower.at, at=follower.at.at - 7, checksum="00000000")
    with pytest.raises(Moved):
        accepted(Follower(owner.queue.journal_dir, elsewhere))


def spoil(segment, text):
    """Flip a bit of a text in a segment, in place."""
    data = bytearray(segment.read_bytes())
    data[data.index(text.encode())] ^= 1
    os.chmod(segment, 0o600)
    segment.write_bytes(data)


def test_a_look_finds_what_has_changed(owner, follower):
    assert follower.has_changed()
    assert not follower.has_changed()
    commit(owner)
    assert follower.has_changed()
    owner.spool.journal.seal()
    assert follower.has_changed()
    assert not follower.has_changed()


def test_claims_and_ends_are_read_in_order(owner, follower):
    (msg_id,) = commit(owner)
    owner.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
    owner.end(msg_id)
    owner.stop()
    words = [line["ev"] for line in follower.read() if line.get("msg") == msg_id]
    assert words == ["commit", "claim", "finish"]
    owner.open()
