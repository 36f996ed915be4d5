"""Groups of the journal that are written bit by bit and synced once."""

import os

import orjson
import pytest

from rq.errors import Damaged, DiskFailed
from rq.journal import history, line
from rq.journal.writer import GROUP_EVENTS
from rq.spool import check
from rq.words.states import Event, State


def journal(owner):
    return owner.spool.journal


def active(owner):
    return history.active_segments(owner.queue.journal_dir)[-1].path


def part(owner, number=1, size=50):
    """Append messages and write them into the open group; return their ids."""
    ids = [owner.submit(param1="x" * size) for _ in range(number)]
    assert journal(owner).write(last=False)
    return ids


def rows(path):
    """Return the lines of a segment, without its header."""
    found = path.read_bytes().rstrip(b"\0").splitlines()
    return [orjson.loads(one) for one in found][1:]


def states(owner, ids):
    return [owner.spool.find(one) for one in ids]


def test_parts_are_one_group_that_the_last_event_ends(owner):
    part(owner, 2)
    part(owner)
    owner.submit()
    owner.spool.commit()
    lines = rows(active(owner))
    assert [one["ev"] for one in lines] == [Event.COMMIT] * 4
    assert [one["g"] for one in lines] == [1] * 4
    assert [one.get("end") for one in lines] == [None, None, None, 1]


def test_a_group_whose_events_are_all_written_gets_a_last_line(owner):
    part(owner)
    owner.spool.commit()
    part(owner)
    assert journal(owner).write(last=True)  # nothing to write: it changes nothing
    owner.spool.commit()
    lines = rows(active(owner))
    assert [(one["seq"], one["g"], one["ev"]) for one in lines] == [
        (1, 1, Event.COMMIT),
        (2, 1, line.Note.GROUP),
        (3, 2, Event.COMMIT),
        (4, 2, line.Note.GROUP),
    ]
    assert all(
        one.get("end") == (one["ev"] == line.Note.GROUP or None) for one in lines
    )
    owner.stop()
    assert check.check(owner.queue) == []


def test_parts_that_were_written_outlive_a_kill(owner):
    ids = [*part(owner, 2), *part(owner)]
    lost = owner.submit()
    owner.again()
    assert states(owner, ids) == [State.QUE] * 3
    assert owner.spool.find(lost) is None


def test_nothing_is_pending_after_a_commit_and_all_is_before(owner):
    part(owner)
    assert journal(owner).pending
    assert journal(owner).position.seq == 0
    owner.spool.commit()
    assert not journal(owner).pending
    assert journal(owner).position.seq == journal(owner).seq


def starts(path):
    """Return where the lines of a segment start, and the end of the last."""
    data, found, at = path.read_bytes(), [], 0
    while data[at : at + 1] == b"{":
        found.append(at)
        at = data.index(b"\n", at) + 1
    return [*found, at]


def tear(path, number):
    """Change a byte in the line `number`; 0 is the header."""
    with path.open("r+b") as file:
        file.seek(starts(path)[number] + 30)
        file.write(b"\0")


@pytest.mark.parametrize("torn", [2, 3, 4])
def test_an_open_group_that_is_torn_ends_at_the_hole(owner, torn):
    ids = [*part(owner, 2), *part(owner, 2)]
    tear(active(owner), torn)
    owner.again()
    kept = torn - 1
    assert states(owner, ids) == [State.QUE] * kept + [None] * (4 - kept)


@pytest.mark.parametrize("bad", [1, 2, 3, 4])
def test_a_bad_line_in_a_group_of_parts_is_damage_when_a_later_group_follows(
    owner, bad
):
    part(owner, 2)
    part(owner)
    owner.spool.commit()
    owner.submit()
    owner.spool.commit()
    tear(active(owner), bad)
    owner.crash()
    with pytest.raises(Damaged):
        owner.open()


def test_parts_that_do_not_fit_go_to_the_next_segment_when_the_first_are_durable(owner):
    size = 120_000
    ids = []
    first = active(owner)
    for _ in range(8):
        ids += part(owner, size=size)
    ids.append(owner.submit(param1="x" * size))
    assert not journal(owner).write(last=False)
    assert len(rows(first)) == 8
    owner.spool.commit()
    assert active(owner) != first
    read = list(history.events_after(owner.queue.journal_dir, 0))
    events = [one for found in read for one in found.events]
    assert [one["seq"] for one in events] == list(range(1, 10))
    assert [one["g"] for one in events] == [1] * 8 + [2]
    ids += part(owner)
    owner.spool.commit()
    owner.again()
    assert states(owner, ids) == [State.QUE] * 10


def test_a_group_may_not_grow_without_end(owner):
    part(owner, 100)
    assert not journal(owner).full
    while not journal(owner).full:
        part(owner, 100)
    assert journal(owner).seq <= GROUP_EVENTS
    owner.spool.commit()
    assert not journal(owner).full


def test_parts_of_a_failed_group_go_to_a_new_segment_together(owner, monkeypatch):
    owner.submit()
    owner.spool.commit()
    ids = part(owner, 2)
    failing = active(owner)
    real, left = os.fdatasync, [1]

    def fails_once(fd):
        if left and left.pop():
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fails_once)
    with pytest.raises(DiskFailed):
        owner.spool.commit()
    ids.append(owner.submit())
    assert not journal(owner).write(last=False)
    owner.spool.commit()
    assert active(owner) != failing
    assert [one["seq"] for one in rows(active(owner))] == [2, 3, 4, 5]
    owner.again()
    assert states(owner, ids) == [State.QUE] * 3
