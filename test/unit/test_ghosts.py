"""Processes that do not end keep their messages in run: which those are."""

import os

import pytest

from rq.proc.processes import Holder
from rq.spool.batch_dirs import with_theirs

PREFIX = "q/j0/"
RUNNING = {"a": 0, "b": 1, "c": None}


@pytest.fixture
def ghost():
    """Make processes that do not end; their descriptors are closed."""
    made = []

    def make(lease, msg_id=""):
        made.append(os.open("/dev/null", os.O_RDONLY))
        return Holder(1, made[-1], lease, msg_id)

    yield make
    for fd in made:
        os.close(fd)


def ids(ghosts):
    found = [one.msg_id for one in ghosts if one.msg_id]
    for one in ghosts[1:]:
        os.close(one.pidfd)
    return found


def test_a_worker_that_stays_keeps_the_message_of_its_slot(ghost):
    # Of c no claim is left that tells its slot: it may be its.
    found = with_theirs([ghost(PREFIX + "1/5.7")], PREFIX, RUNNING)
    assert ids(found) == ["b", "c"]


def test_what_tells_no_slot_keeps_all(ghost):
    assert ids(with_theirs([ghost("")], PREFIX, RUNNING)) == ["a", "b", "c"]


def test_a_process_of_one_message_keeps_that_alone(ghost):
    assert ids(with_theirs([ghost(PREFIX + "1/5.7", "a")], PREFIX, RUNNING)) == ["a"]
