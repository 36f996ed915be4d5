"""By what a journal knows the place that it was written in, and what a person decides of a
copy."""

import os
import shutil

import pytest
from harness.spool import Owner

from rq.journal import history, mark
from rq.layout import JournalDir, Root


@pytest.fixture
def place(owner):
    """The journal of a queue that has ended, with some events that are not sealed."""
    owner.submit(param1="a")
    owner.spool.commit()
    owner.crash()
    return owner.queue.journal_dir


@pytest.fixture
def copied(place, tmp_path):
    target = Root(tmp_path / "copies").queue("b")
    shutil.copytree(place.path, target.path)
    return target.journal_dir


def _id(place: JournalDir) -> str:
    journal = history.journal_of(place, history.active_segments(place))
    assert journal is not None
    return journal


def _accept(place, *, copy):
    fd = os.open(place.path, os.O_RDONLY)
    try:
        mark.accept(place, fd, _id(place), copy=copy)
    finally:
        os.close(fd)


def test_a_journal_is_where_it_was_written_and_a_copy_is_elsewhere(place, copied):
    assert not mark.is_elsewhere(place)
    assert mark.is_elsewhere(copied)


@pytest.mark.parametrize("copy", [False, True])
def test_what_a_person_has_decided_of_a_copy_holds(place, copied, copy):
    old = _id(copied)
    _accept(copied, copy=copy)
    assert not mark.is_elsewhere(copied)
    new = mark.goes_on_as(copied, old)
    assert (new == old) is not copy
    assert mark.is_written(copied, new)
    assert mark.is_written(copied, old) is not copy
    assert mark.goes_on_as(copied, "0" * 8) == "0" * 8
    assert mark.goes_on_as(place, old) == old
    # A copy of the copy is one again.
    shutil.copytree(copied.path, copied.path.with_name("c"))
    assert mark.is_elsewhere(Root(copied.path.parents[1]).queue("c").journal_dir)


def test_a_copy_goes_on_as_a_journal_of_its_own_that_names_the_first(tmp_path):
    first = Owner(tmp_path)
    first.open()
    first.submit(param1="a")
    first.spool.commit()
    first.crash()
    place = first.queue.journal_dir
    old = _id(place)
    _accept(place, copy=True)
    first.open()
    first.submit(param1="b")
    first.spool.commit()
    first.crash()
    new = _id(place)
    assert new != old
    assert history.lineage(place, new) == [old, new]
    assert history.lineage(place, old) == [old]
    assert not history.is_whole(place, new)


@pytest.mark.parametrize("file", ["mark", "segment"])
def test_a_file_that_was_put_in_place_of_the_first_tells_a_copy(place, file):
    path = place.mark if file == "mark" else history.active_segments(place)[-1].path
    data = path.read_bytes()
    path.rename(path.with_name("aside"))  # so that its number is not given again
    path.write_bytes(data)
    assert mark.is_elsewhere(place)
    _accept(place, copy=False)
    assert not mark.is_elsewhere(place)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]\n", b'{"journal": "x"}'])
def test_a_mark_that_is_not_whole_is_none_and_the_segments_tell(place, copied, text):
    for each, is_copy in ((place, False), (copied, True)):
        each.mark.write_bytes(text)
        assert mark.read(each) is None
        assert mark.is_elsewhere(each) is is_copy
        assert mark.goes_on_as(each, "x") == "x"
        assert not mark.is_written(each, _id(each))
    copied.mark.unlink()
    assert mark.read(copied) is None
