"""Journals as a bad disk returns them: what precedes the damage stays, the rest is
named, and nothing is made up."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from harness.hostile_values import json_value, mangled
from harness.spool import Owner, check_live
from hypothesis import given, settings
from hypothesis import strategies as st

from rq.errors import Damaged
from rq.journal import history, line
from rq.spool import check, checkpoint, index
from rq.spool.entry import Entry
from rq.words.states import Event, State

# Each of these opens a queue, with all its syncs.
few = settings(max_examples=settings().max_examples // 3)
SEED = line.seed("journal", "0000000000000001")


class Story:
    """A queue killed in the middle of its life, and what its last segment says."""

    def __init__(self, path):
        self.path = path
        owner = Owner(path)
        owner.open()
        self.early = self.some_work(owner)
        owner.checkpoint()
        self.late = self.some_work(owner) + self.some_work(owner)
        owner.crash()
        self.segment = history.active_segments(owner.queue.journal_dir)[-1].path
        self.data = self.segment.read_bytes().rstrip(b"\0")
        self.lines = self.data.splitlines(keepends=True)
        self.events = [orjson.loads(b"{" + one[18:]) for one in self.lines]
        self.checkpoint = checkpoint.read(owner.queue)

    def some_work(self, owner):
        """Accept six messages in two groups; one runs, one ends, one is removed."""
        ids = []
        for _ in range(2):
            ids += [owner.submit(param1="x" * 20, due=4e9) for _ in range(3)]
            owner.spool.commit()
        owner.apply()
        for one in ids[:2]:
            owner.spool.claim(one, 0)
        owner.spool.commit()
        owner.end(ids[0])
        owner.end(ids[1], Event.FAIL)
        owner.spool.commit()
        owner.apply()
        return ids

    def whole(self, data):
        """Return how many lines stand in `data` as they were written, from the first."""
        ends = itertools.accumulate(map(len, self.lines))
        return sum(data[:end] == self.data[:end] for end in ends)

    def later_ones(self, data):
        """Return whether a line of a later group than the first bad one is whole."""
        good = self.whole(data)
        torn = self.events[good]["g"] if good < len(self.lines) else 10**9
        rest = data[sum(map(len, self.lines[:good])) :]
        return any(
            before + text in rest
            for event, text in zip(self.events[1:], self.lines[1:], strict=True)
            if event["g"] > torn
            for before in (b"\n", b"\0")
        )


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    return Story(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def place():
    """Where copies are opened: in memory where there is such a place, for their syncs."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rq-fuzz-", dir=memory) as path:
        yield Path(path)


def copied(story, place):
    """Give a copy of the queue, in the place of the last."""
    shutil.rmtree(place / "queue", ignore_errors=True)
    shutil.copytree(story.path / "queue", place / "queue", symlinks=True)
    owner = Owner(place)
    return owner, owner.queue.journal / story.segment.name


@few
@given(st.data())
def test_a_damaged_journal_keeps_what_precedes_the_damage_or_says_so(
    story, place, data
):
    changed = data.draw(mangled(story.data))
    owner, segment = copied(story, place)
    segment.write_bytes(changed + bytes(200))
    kept = {one["msg"]: one for one in story.events[1 : story.whole(changed)]}
    try:
        owner.open()
    except Damaged:
        assert segment.read_bytes() == changed + bytes(200)
        (problem,) = check.check(owner.queue)
        assert problem.kind == "damage"
        return
    try:
        assert not story.later_ones(changed), "good lines behind the damage are lost"
        for msg_id in kept:
            assert owner.spool.find(msg_id) is not None, f"{msg_id} is lost"
        assert set(owner.spool.entries) <= {*story.early, *story.late}
        # Of what was lost for good, folders may tell more than the journal does.
        wrong = [one for one in check_live(owner.spool) if one.kind != "count"]
        assert wrong == []
        once = {one: owner.spool.find(one) for one in story.late}
        owner.again()
        assert {one: owner.spool.find(one) for one in story.late} == once
        owner.stop()
    finally:
        if owner.is_open:
            owner.crash()


@few
@given(st.data())
def test_lines_of_another_segment_are_no_events_of_this(story, place, data):
    """As when a block of an old file turns up in a new one."""
    covered = [one.get("seq", 0) <= story.checkpoint.seq for one in story.events]
    at = data.draw(st.integers(sum(covered), len(story.lines)))
    other = line.seed("cafecafe", story.segment.name)
    first = data.draw(st.integers(1, len(story.lines) - 1))
    stale = b"".join(
        line.sealed(one[18:-1], other) for one in story.lines[first : first + 3]
    )
    owner, segment = copied(story, place)
    head = b"".join(story.lines[:at])
    segment.write_bytes(head + stale + bytes(200))
    (read,) = history.events_after(owner.queue.journal_dir, 0)
    assert read.events == story.events[1:at]
    owner.open()
    wrong = [one for one in check_live(owner.spool) if one.kind != "count"]
    owner.crash()
    assert wrong == []


@few
@given(st.data())
def test_a_damaged_checkpoint_or_index_loses_no_message(story, place, data):
    owner, _ = copied(story, place)
    owner.open()
    owner.stop()
    known = {one: owner_state(place, one) for one in story.early + story.late}
    path = data.draw(st.sampled_from([owner.queue.checkpoint, owner.queue.index]))
    cut = data.draw(st.integers(0, path.stat().st_size - 2))
    path.write_bytes(path.read_bytes()[:cut])
    owner.open()
    try:
        assert {one: owner.spool.find(one) for one in known} == known
        assert check_live(owner.spool) == []
    finally:
        owner.crash()


def owner_state(place, msg_id):
    """Return where the folder of a message lies."""
    queue = Owner(place).queue
    states = [one for one in State if one not in (State.NOWHERE, State.GONE)]
    there = [one for one in states if queue.message(one, msg_id).exists()]
    return there[0] if there else None


@given(st.data())
def test_a_checkpoint_is_read_or_it_is_none(story, place, data):
    owner, _ = copied(story, place)
    good = owner.queue.checkpoint.read_bytes()
    value = st.one_of(mangled(good), json_value.map(repr).map(str.encode))
    owner.queue.checkpoint.write_bytes(data.draw(value))
    found = checkpoint.read(owner.queue)
    assert found is None or found.whole().encode() == good


@few
@given(st.data())
def test_an_index_is_read_or_it_is_none(story, place, data):
    owner, _ = copied(story, place)
    owner.open()
    owner.stop()
    good = owner.queue.index.read_bytes()
    whole = content(index.read(owner.queue))
    owner.queue.index.write_bytes(data.draw(mangled(good)))
    assert content(index.read(owner.queue)) in (None, whole)


def content(of: index.Index | None) -> index.Index | None:
    """Return an index with what its entries hold in their place: these are not compared."""
    if of is None:
        return None
    entries = {
        msg_id: [getattr(entry, name) for name in Entry.__slots__]
        for msg_id, entry in of.entries.items()
    }
    return replace(of, entries=entries)


@given(st.dictionaries(st.text(max_size=9), st.integers(-(2**60), 2**60), min_size=1))
def test_a_line_comes_back_as_it_was_and_changed_never(record):
    text = line.sealed(line.body(record), SEED)[:-1]
    assert line.read(text, SEED) == record


@given(st.binary(max_size=80), st.data())
def test_no_bytes_are_a_line_by_chance(junk, data):
    assert line.read(junk, SEED) is None
    good = line.sealed(line.body({"g": 1, "seq": 1, "ev": "commit"}), SEED)[:-1]
    changed = data.draw(mangled(good))
    found = line.read(changed, SEED)
    assert found is None or changed[17:] == good[17:]
    assert line.peek(junk) is None or junk.strip()


@pytest.mark.parametrize("at", [0, 9, 30, 80])
def test_lines_behind_a_bad_header_are_not_passed_over(story, place, at):
    owner, segment = copied(story, place)
    changed = bytearray(story.data)
    changed[at] ^= 1
    segment.write_bytes(changed)
    with pytest.raises(Damaged, match="its first line is bad"):
        owner.open()
