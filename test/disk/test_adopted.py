"""Since when a queue is ours: what cannot be told makes nothing old."""

import os

import pytest
from harness.limits import no_descriptors
from harness.spool import Owner

from rq.spool import adoption

LONG_AGO, ADOPTED = 1425204000.0, 1_800_000_000.0


@pytest.fixture
def queue(tmp_path):
    queue = Owner(tmp_path / "root").queue
    for name in ("prep", "done", "relayed", "err"):
        (queue.path / name).mkdir(exist_ok=True)
    (queue.path / "prep/20150301.1000.00.001.412").mkdir(parents=True)
    adoption.note(queue, ADOPTED)
    return queue


def test_what_cannot_be_read_now_is_not_taken_for_a_queue_that_was_always_ours(queue):
    assert adoption.at(queue) == ADOPTED
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        adoption.at(queue)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"at": null}'])
def test_a_file_that_is_not_whole_makes_nothing_old(queue, text):
    queue.adopted.write_text(text)
    os.utime(queue.adopted, (LONG_AGO, ADOPTED))
    assert adoption.at(queue) == ADOPTED


def test_a_queue_that_nothing_lay_in_was_always_ours(tmp_path):
    queue = Owner(tmp_path / "root").queue
    for name in ("prep", "done", "relayed", "err"):
        (queue.path / name).mkdir(exist_ok=True)
    adoption.note(queue, ADOPTED)
    assert adoption.at(queue) == 0.0
