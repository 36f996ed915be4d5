"""Numbers of events that an earlier RQ never wrote: `rq check --fix` says so in their place."""

import os

import pytest
from harness.spool import check_live

from rq.errors import Damaged
from rq.journal import gaps, history, line
from rq.spark.journal_plan import Stretch, read
from rq.spool import check
from rq.words.states import State


def count_one_that_is_not_written(owner):
    """Do what an earlier RQ did over a name that is no UTF-8."""
    owner.spool.journal.seq += 1


def damaged(owner):
    """Return messages of a queue whose next start was refused, and their journal."""
    ids = [owner.submit() for _ in range(5)]
    count_one_that_is_not_written(owner)
    owner.spool.commit()
    owner.spool.journal.seal()
    ids += [owner.submit() for _ in range(2)]
    count_one_that_is_not_written(owner)
    ids.append(owner.submit())
    owner.spool.commit()
    journal = owner.spool.journal.journal_id
    owner.crash()
    with pytest.raises(Damaged, match="ends with event 5, the next segment follows 6"):
        owner.open()
    return ids, journal


def test_a_queue_that_a_number_without_a_line_has_stopped_starts_again(owner):
    ids, _ = damaged(owner)
    found = check.check(owner.queue, fix=True)
    assert [one.kind for one in found] == ["mended", "mended"]
    assert "no event was ever written as 6;" in found[0].text
    assert "no event was ever written as 9;" in found[1].text
    assert check.check(owner.queue, fix=True) == check.check(owner.queue) == []
    owner.open()
    assert [owner.spool.find(one) for one in ids] == [State.QUE] * 8
    assert check_live(owner.spool) == []


def test_who_reads_the_history_misses_no_number_then(owner):
    _, journal = damaged(owner)
    check.check(owner.queue, fix=True)
    events = list(read(Stretch(str(owner.queue.path), journal, 1, 10)))
    assert [one["seq"] for one in events] == list(range(1, 11))
    assert [one["seq"] for one in events if one["ev"] == line.Note.VOID] == [6, 9]


def test_a_mend_of_which_only_the_journal_was_written_is_enough_to_start(owner):
    ids, _ = damaged(owner)
    assert len(gaps.fill_gaps(owner.queue.journal_dir)) == 2
    assert gaps.fill_gaps(owner.queue.journal_dir) == []
    owner.open()
    assert [owner.spool.find(one) for one in ids] == [State.QUE] * 8


def test_what_was_mended_lies_in_the_history_alone(owner):
    _, journal = damaged(owner)
    place = owner.queue.journal_dir
    gaps.fill_gaps(place)
    sealed = history.sealed_segments(place, journal)
    assert [(each.first, each.sealed_last) for each in sealed] == [(1, 6), (7, 10)]
    assert history.active_segments(place) == []
    assert len(list((place.history / journal).iterdir())) == 2


def test_lines_that_are_lost_stay_damage(owner):
    damaged(owner)
    (path,) = owner.queue.history.glob("*/*")
    data = path.read_bytes().splitlines(keepends=True)
    os.truncate(path, len(b"".join(data[:-1])))
    before = path.read_bytes()
    (found,) = check.check(owner.queue, fix=True)
    assert (found.kind, path.read_bytes()) == ("damage", before)
    with pytest.raises(Damaged, match="ends with event 4"):
        owner.open()
