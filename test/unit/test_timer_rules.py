"""When a timer fires: pure rules, any clock."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadConfig
from rq.timers import timer
from rq.timers.past import Past, beat, due, not_ahead
from rq.timers.timer import Timer

DAILY = Timer("daily", 86400, "cleaner", {})
HOUR = Timer("hour", 3600, "q", {})


def test_a_timer_new_to_rq_is_due_at_once():
    assert due(DAILY, Past(), 1000.0) == 1000.0


def test_a_changed_period_counts_from_the_last_fire():
    past = Past(last=1000.0)
    assert due(Timer("x", 60, "q", {}), past, 1001.0) == 1060.0
    assert due(Timer("x", 600, "q", {}), past, 1001.0) == 1600.0


def test_a_little_lateness_does_not_add_up():
    past = Past(last=1000.0)
    assert beat(HOUR, past, 4600.8) == 4600.0


def test_after_a_long_stop_it_fires_once_and_then_a_period_later():
    past = Past(last=0.0)
    now = 10.5 * 3600
    assert due(HOUR, past, now) <= now
    past = Past(last=beat(HOUR, past, now))
    assert due(HOUR, past, now) == now + 3600


def test_a_clock_that_went_back_delays_by_a_period_at_most():
    past = Past(last=1_000_000.0)
    assert due(HOUR, past, 500.0) == 500.0 + 3600
    past = not_ahead(past, 500.0)
    assert due(HOUR, past, 500.0 + 3599) == 500.0 + 3600


def test_a_clock_that_went_back_delays_a_new_try_no_longer_than_any_other():
    past = not_ahead(Past(failures=3, tried=1_000_000.0), 500.0)
    assert due(HOUR, past, 503.0) == 504.0


def test_a_clock_that_goes_on_changes_nothing():
    for past in (Past(), Past(last=400.0, tried=400.0), Past(last=500.0)):
        assert not_ahead(past, 500.0) is past


def test_a_failure_is_tried_again_soon_and_then_ever_later():
    waits = [due(HOUR, Past(failures=n, tried=100.0), 100.0) - 100 for n in (1, 2, 9)]
    assert waits == [1, 2, 60]


@given(
    st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=50),
    st.integers(min_value=60, max_value=10000),
)
def test_no_jumping_of_the_clock_makes_a_storm(steps, period):
    """Each step of the clock gives one fire at most, and asks for no second at once."""
    timer, past, now = Timer("t", period, "q", {}), Past(), 1e9
    for step in steps:
        now += step
        if due(timer, past, now) <= now:
            past = Past(last=beat(timer, past, now))
        assert now < due(timer, past, now) <= now + period


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "JSON object"),
        ('{"msg": {"dest": "q"}}', "'period' is missing"),
        ('{"period": 59, "msg": {"dest": "q"}}', "the least is 60"),
        ('{"period": "60", "msg": {"dest": "q"}}', "whole number"),
        ('{"period": true, "msg": {"dest": "q"}}', "whole number"),
        ('{"period": 60}', "'msg' is missing"),
        ('{"period": 60, "msg": []}', "'msg' is missing"),
        ('{"period": 60, "msg": {}}', "'dest' of 'msg' is missing"),
        ('{"period": 60, "msg": {"dest": "../x"}}', "neither a queue nor a URL"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path, text, told):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(BadConfig, match=told):
        timer.parse(path)


def test_only_dest_and_params_are_taken(tmp_path):
    path = tmp_path / "t.json"
    message = {"dest": "q", "param1": "a", "param4": 4, "due": 5, "src": "x"}
    path.write_text(json.dumps({"period": 60, "msg": message}))
    assert timer.parse(path) == Timer("t", 60, "q", {"param1": "a", "param4": 4})


@pytest.mark.parametrize("dest", ["http://h:1/q/x", "https://h/q/x"])
def test_a_remote_destination_goes_by_relay(dest):
    assert Timer("t", 60, dest, {}).queue == "relay"


@pytest.mark.parametrize("name", ["a.b.json", "a", "a.txt", "a.yaml", "a.json.bak"])
def test_other_names_are_no_timers(name):
    assert timer.refusal(name)
