"""Which events are read: up to a gap, by number and never by file, each once."""

from __future__ import annotations

import pytest
from harness.journal_files import START, JournalFiles, life
from harness.spool import Owner, a_message

from rq.errors import Damaged
from rq.layout import Root
from rq.spark import journal_plan


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


@pytest.fixture
def journal(root):
    """Give a journal of three segments, six events each."""
    made = JournalFiles(root, "a", "aa")
    for part in range(3):
        made.seal(event for one in "xy" for event in life(f"{one}{part}", START))
    return made


def latest(root, start=None, **limits):
    return journal_plan.latest(journal_plan.look(root), start or {}, **limits)


def rows(root, start, end, most=100):
    """Return number and message of what lies between two offsets, as tasks read it."""
    parts = journal_plan.stretches(journal_plan.look(root), start, end, most)
    return [
        (one["seq"], one.get("msg"))
        for part in parts
        for one in journal_plan.read(part)
    ]


def test_all_that_is_sealed_is_read_once_in_its_order(root, journal):
    assert latest(root) == {"aa": 18}
    assert [seq for seq, _ in rows(root, {}, {"aa": 18})] == list(range(1, 19))
    assert rows(root, {"aa": 18}, {"aa": 18}) == []
    assert rows(root, {}, {"aa": 18}, most=4) == rows(root, {}, {"aa": 18})


@pytest.mark.parametrize("limit", [1, 5, 6, 7, 100])
def test_a_limit_cuts_anywhere_and_nothing_falls_between(root, journal, limit):
    JournalFiles(root, "b", "bb").seal(life("z", START))
    start, read = {}, []
    while (end := latest(root, start, rows=limit)) != start:
        some = rows(root, start, end)
        assert 0 < len(some) <= limit
        read += some
        start = end
    assert start == {"aa": 18, "bb": 3}
    assert sorted(read) == sorted(rows(root, {}, start))


def test_between_two_offsets_the_same_is_read_when_files_were_merged(root, journal):
    start, end = {"aa": 4}, {"aa": 15}
    before = rows(root, start, end)
    parts = journal_plan.stretches(journal_plan.look(root), start, end, 100)
    whole = JournalFiles(root, "a", "aa")
    merged = [e for n in range(3) for one in "xy" for e in life(f"{one}{n}", START)]
    path = whole.seal(merged)
    assert rows(root, start, end) == before  # both lie side by side
    for one in journal.path.iterdir():
        if one != path:
            one.unlink()
    assert rows(root, start, end) == before
    # What was planned before the merge is read after it.
    again = [one["seq"] for part in parts for one in journal_plan.read(part)]
    assert again == [seq for seq, _ in before]


def test_a_segment_that_is_not_sealed_yet_is_waited_for(root, journal):
    first, second, _ = sorted(journal.path.iterdir())
    active = journal.queue.journal / second.name.partition("-")[0]
    active.parent.mkdir()
    second.rename(active)
    assert latest(root, {"aa": 2}) == {"aa": 6}
    active.rename(second)
    first.rename(journal.queue.journal / first.name.partition("-")[0])
    assert latest(root) == {}


def test_stretches_without_a_gap_are_what_is_held(root, journal):
    _, second, _ = sorted(journal.path.iterdir())
    [whole] = journal_plan.look(root)
    assert list(journal_plan.held(whole)) == [(1, 18)]
    second.unlink()
    [left] = journal_plan.look(root)
    assert list(journal_plan.held(left)) == [(1, 6), (13, 18)]


def test_a_gap_is_damage_unless_nobody_has_read_so_far(root, journal):
    first, second, _ = sorted(journal.path.iterdir())
    first.unlink()
    assert latest(root) == {"aa": 18}  # outlived its retention before the first look
    second.unlink()
    with pytest.raises(Damaged, match=r"queue a: events 7 to 12 of journal aa"):
        latest(root, {"aa": 6})
    [left] = journal_plan.look(root)
    assert list(journal_plan.held(left)) == [(13, 18)]
    assert latest(root, {"aa": 6}, skip_gaps=True) == {"aa": 18}
    assert [seq for seq, _ in rows(root, {"aa": 6}, {"aa": 18})] == list(range(13, 19))


def test_what_is_planned_and_gone_is_told(root, journal):
    [part] = journal_plan.stretches(journal_plan.look(root), {"aa": 6}, {"aa": 12}, 9)
    next(one for one in journal.path.iterdir() if "0007-" in one.name).unlink()
    with pytest.raises(Damaged, match="event 7 is missing"):
        list(journal_plan.read(part))
    with pytest.raises(Damaged, match="its queue is gone"):
        journal_plan.stretches([], {}, {"aa": 3}, 9)


def test_what_an_owner_has_sealed_is_read_and_nothing_else(tmp_path, request):
    owner = Owner(tmp_path)
    request.addfinalizer(owner.crash)
    spool = owner.open()
    for number in range(5):
        spool.submit(a_message(f"20270115.0800.00.000.{number}"))
    spool.commit()
    spool.journal.seal()
    spool.submit(a_message("20270115.0800.00.000.9"))
    spool.commit()
    root = Root(tmp_path)
    end = latest(root)
    read = rows(root, {}, end)
    assert [msg for _, msg in read] == [f"20270115.0800.00.000.{n}" for n in range(5)]
    owner.stop()
    assert len(rows(root, end, latest(root))) > 0
