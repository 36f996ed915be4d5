"""A child of the supervisor: its table of states, its back-off, what is next."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import WrongState
from rq.supervisor.children import (
    DO_NOT_RESTART,
    HELPER_SILENCE,
    STABLE,
    Kind,
    Process,
    Step,
    step,
    wake_at,
)
from rq.words.states import CHILD_TRANSITIONS, Child, ChildEvent, next_child

CELLS = list(itertools.product(Child, ChildEvent))


def queue() -> Process:
    return Process(kind=Kind.QUEUE, name="q")


def up(process: Process, now: float) -> Process:
    process.started(now)
    process.ready(now)
    return process


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_a_cell_of_the_table_leads_on_or_is_refused(state, event):
    if (state, event) in CHILD_TRANSITIONS:
        assert next_child(state, event) is CHILD_TRANSITIONS[state, event]
    else:
        with pytest.raises(WrongState):
            next_child(state, event)


def test_a_wanted_child_that_is_down_is_started():
    assert step(queue(), 0.0) is Step.START


def test_each_failure_in_a_row_doubles_the_wait():
    process, now, waits = queue(), 0.0, []
    for _ in range(8):
        up(process, now)
        process.ended(now, 1, "exit 1")
        waits.append(process.start_at - now)
        assert step(process, process.start_at - 0.01) is None
        now = process.start_at
        assert step(process, now) is Step.START
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_staying_up_forgets_earlier_failures():
    process = queue()
    for _ in range(5):
        up(process, 0.0)
        process.ended(0.0, 1, "exit 1")
    up(process, 100.0)
    process.ended(100.0 + STABLE, 1, "exit 1")
    assert process.start_at == 100.0 + STABLE + 1.0
    assert process.restarts == 6


def test_no_number_of_failures_makes_a_child_dead_for_good():
    process = queue()
    for _ in range(1000):
        up(process, 0.0)
        process.ended(0.0, 1, "exit 1")
    assert process.state is Child.BACKOFF


def test_the_status_that_forbids_it_is_not_followed_by_a_restart():
    process = queue()
    process.started(0.0)
    process.ended(0.0, DO_NOT_RESTART, "the journal is damaged")
    assert process.state is Child.FATAL
    assert step(process, 1e9) is None
    assert process.reason == "the journal is damaged"


def test_a_child_that_was_given_up_can_be_revived():
    process = queue()
    process.started(0.0)
    process.ended(0.0, DO_NOT_RESTART, "the journal is damaged")
    process.revive()
    assert step(process, 0.0) is Step.START


def test_a_restart_stops_and_then_starts():
    process = up(queue(), 0.0)
    process.stop_again = True
    assert step(process, 1.0) is Step.STOP
    process.stopping(1.0)
    assert step(process, 2.0) is None
    process.ended(2.0, 0, "")
    assert step(process, 2.0) is Step.START


@pytest.mark.parametrize("failed", [0, 1, DO_NOT_RESTART])
def test_a_child_that_is_not_wanted_comes_to_rest(failed):
    process = up(queue(), 0.0)
    if failed:
        process.ended(1.0, failed, "failed")
    process.wanted = False
    assert step(process, 2.0) is Step.STOP
    process.stopping(2.0)
    if process.state is Child.STOPPING:
        process.ended(3.0, 0, "")
    assert process.state is Child.DOWN
    assert step(process, 4.0) is None


def test_what_does_not_stop_is_killed_once():
    process = up(queue(), 0.0)
    process.wanted = False
    process.stopping(0.0)
    assert step(process, process.patience - 1) is None
    assert step(process, process.patience) is Step.KILL
    process.killed = True
    assert step(process, 1e6) is None
    assert wake_at(process) is None


def test_a_silent_start_kills_a_helper_and_never_a_queue():
    helper = Process(kind=Kind.TIMERS, name="timers")
    slow = queue()
    for process in (helper, slow):
        process.started(0.0)
    assert step(helper, HELPER_SILENCE - 1) is None
    assert step(helper, HELPER_SILENCE) is Step.KILL
    assert step(slow, 1e6) is None
    assert "starting for 70 s" in slow.to_json(70.0, 1000.0)["reason"]


def settle(process: Process, now: float, seconds: float) -> float:
    """Do for some seconds what `step` says; return the time after it."""
    for _ in range(int(seconds * 2)):
        now += 0.5
        match step(process, now):
            case Step.START:
                up(process, now)
            case Step.STOP:
                process.stopping(now)
                if process.state is Child.STOPPING:
                    process.ended(now, 0, "")
    return now


def die(process: Process, now: float, status: int) -> None:
    if process.running:
        process.ended(now, status, "died")


def restart(process: Process) -> None:
    process.stop_again = process.running
    process.revive()


@given(st.lists(st.sampled_from(["pass", "die", "fatal", "want", "drop", "restart"])))
def test_any_course_of_events_leads_back_up(events):
    process, now = queue(), 0.0
    for event in events:
        match event:
            case "pass":
                now = settle(process, now, 1)
            case "die":
                die(process, now, 1)
            case "fatal":
                die(process, now, DO_NOT_RESTART)
            case "restart":
                restart(process)
            case _:
                process.wanted = event == "want"
    process.wanted = True
    restart(process)
    settle(process, now, 100)
    assert process.state is Child.UP
