"""What an owner remembers of a message: what its start waits for, and how long it waited."""

import sys

import pytest

from rq.spool.entry import Entry
from rq.words.states import State


def entry(*, due=0.0, since=0.0, seq=7):
    return Entry(State.QUE, State.QUE, due, seq, since=since)


def test_a_start_waits_for_the_event_that_told_its_content_last():
    waiting = entry(seq=7)
    assert waiting.last_told == 7
    waiting.said = 9  # it was rescheduled: its place among the others is kept
    assert waiting.last_told == 9
    waiting.seq = 12  # it went round again, and its content was not told
    assert waiting.last_told == 12


@pytest.mark.parametrize(
    ("due", "since", "waited"),
    [(100.0, 90.0, 5.0), (90.0, 100.0, 5.0), (200.0, 90.0, 0.0)],
)
def test_a_message_waits_from_when_it_is_in_que_and_due(due, since, waited):
    assert entry(due=due, since=since).waited_us(105.0) == waited * 1e6


MOST_BYTES = 128  # there may be a million


def test_a_waiting_message_costs_an_owner_few_bytes():
    waiting = entry()
    waiting.hold_back(False, None)
    waiting.body = b"to be written"
    waiting.wrote()
    assert sys.getsizeof(waiting) <= MOST_BYTES
    assert waiting.rare is entry().rare  # it shares it with all that have nothing


def test_what_few_messages_have_is_no_other_messages():
    waiting, other = entry(), entry()
    waiting.held, waiting.busy, waiting.status = True, 1, b"{}"
    assert (other.held, other.busy, other.status) == (False, 0, None)
    assert not waiting.may_run
    assert not waiting.settled


def test_what_was_written_is_not_kept_and_what_a_person_said_is():
    waiting = entry()
    waiting.held, waiting.status, waiting.results = True, b"{}", (1, ("a",))
    waiting.wrote()
    assert waiting.settled
    assert waiting.held
    waiting.hold_back(False, None)
    waiting.wrote()
    assert waiting.may_run
    assert waiting.rare is entry().rare
