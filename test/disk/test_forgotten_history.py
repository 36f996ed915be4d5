"""Which sealed segments of the history are removed, and which stay for the next start."""

import os

import pytest
from harness.journal_files import START, JournalFiles, life

from rq.journal import sealing
from rq.layout import Root


@pytest.fixture
def files(tmp_path):
    """A history of three segments with three events each."""
    files = JournalFiles(Root(tmp_path), "q", "a")
    files.queue.journal_dir.active.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        os.utime(files.seal(life(f"m{number}", START)), (number, number))
    return files


def forget(files, upto, **limits):
    removed, held = sealing.forget(files.queue.journal_dir, "a", upto, **limits)
    assert len(list(files.path.iterdir())) == 3 - removed
    return removed, held


@pytest.mark.parametrize(
    ("upto", "told"), [(2, (0, True)), (3, (1, True)), (6, (2, False)), (9, (2, False))]
)
def test_what_a_start_reads_stays_and_so_does_the_last(files, upto, told):
    assert forget(files, upto, before=9.0) == told


def test_the_oldest_goes_until_the_rest_is_small_enough(files):
    oldest, second, _ = sorted(files.path.iterdir())
    size = oldest.stat().st_size + second.stat().st_size  # the last is not counted
    assert forget(files, files.last, size=size) == (0, False)
    assert forget(files, files.last, size=size - 1) == (1, False)


def test_what_is_as_old_as_the_limit_stays(files):
    assert forget(files, files.last, before=0.0) == (0, False)
    assert forget(files, files.last, before=0.5) == (1, False)
