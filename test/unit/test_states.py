"""The table of states: every cell, and the rules that no row may break."""

import itertools

import pytest

from rq.errors import WrongState
from rq.journal import line
from rq.layout import STATE_DIRS
from rq.words.states import (
    FINAL,
    HASHED,
    LIVE,
    TRANSITIONS,
    Event,
    Note,
    Role,
    State,
    next_state,
)

ROWS = [(state, event, *row) for (state, event), row in TRANSITIONS.items()]


@pytest.mark.parametrize("state", State)
def test_each_cell_of_the_table_leads_on_or_is_refused(state):
    for event, role in itertools.product(Event, Role):
        target, roles = TRANSITIONS.get((state, event), (None, frozenset()))
        if role in roles:
            assert next_state(state, event, role) is target
        else:
            with pytest.raises(WrongState, match=state):
                next_state(state, event, role)


def test_what_is_gone_never_comes_back():
    assert [event for state, event in TRANSITIONS if state is State.GONE] == []


@pytest.mark.parametrize(("state", "event", "target", "roles"), ROWS)
def test_a_row_keeps_the_rules_of_its_event(state, event, target, roles):
    rules = {
        Event.PREPARE: (State.PREP, {Role.CREATOR}),
        Event.COMMIT: (State.QUE, {Role.CREATOR}),
        Event.CLAIM: (State.RUN, {Role.QUEUE}),
        Event.FINISH: (State.DONE, {Role.QUEUE}),
        Event.RELAY: (State.RELAYED, {Role.QUEUE}),
        Event.FAIL: (State.ERR, {Role.QUEUE}),
        Event.RETRY: (State.QUE, {Role.QUEUE}),
        Event.RECOVER: (State.QUE, {Role.QUEUE}),
        Event.REQUEUE: (State.QUE, {Role.QUEUE, Role.CREATOR}),
        Event.RESCHEDULE: (State.QUE, {Role.QUEUE, Role.CREATOR}),
        Event.DISMISS: (State.DISMISSED, {Role.CREATOR}),
        Event.REOPEN: (State.ERR, {Role.CREATOR}),
        Event.MOVE: (State.RELAYED, {Role.CREATOR}),
        Event.DISCARD: (State.GONE, {Role.CREATOR}),
        Event.EXPIRE: (State.GONE, {Role.QUEUE, Role.CLEANER}),
    }
    wanted, allowed = rules[event]
    assert target is wanted
    assert roles
    assert roles <= allowed


@pytest.mark.parametrize(("state", "event", "target", "roles"), ROWS)
def test_nobody_but_the_queue_moves_a_message_that_runs(state, event, target, roles):
    if State.RUN in (state, target):
        assert roles == {Role.QUEUE}


@pytest.mark.parametrize("state", sorted(FINAL))
def test_what_has_ended_runs_again_only_when_a_person_says_so(state):
    leading_back = {
        (event, roles)
        for (source, event), (target, roles) in TRANSITIONS.items()
        if source is state and target in LIVE
    }
    assert leading_back <= {(Event.REQUEUE, frozenset({Role.CREATOR}))}


@pytest.mark.parametrize("state", [one for one in State if one is not State.GONE])
def test_every_message_can_be_removed_in_the_end(state):
    seen, to_see = set(), {state}
    while to_see:
        one = to_see.pop()
        seen.add(one)
        ways = {t for (s, _), (t, _) in TRANSITIONS.items() if s is one}
        to_see |= ways - seen
    assert State.GONE in seen


def test_states_are_directories_or_say_where_there_is_none():
    without = {State.DISMISSED, State.NOWHERE, State.GONE}
    assert {str(one) for one in State if one not in without} == set(STATE_DIRS)
    assert HASHED < FINAL
    assert not FINAL & LIVE


def test_notes_and_events_share_no_word():
    words = [*Note, *line.Note, *Event]
    assert len({str(word) for word in words}) == len(words)
