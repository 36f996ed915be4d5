"""When a timer fires: pure rules, any clock."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadConfig
from rq.timers import timer
from rq.timers.past import Past, not_ahead
from rq.timers.rule import Timer
from rq.timers.when import counts_from, due, nominal

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
    assert nominal(HOUR, past, 4600.8) == 4600.0


def test_after_a_long_stop_it_fires_once_and_then_a_period_later():
    past = Past(last=0.0)
    now = 10.5 * 3600
    assert due(HOUR, past, now) <= now
    past = Past(last=nominal(HOUR, past, now))
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
            past = Past(last=nominal(timer, past, now))
        assert now < due(timer, past, now) <= now + period


@pytest.mark.parametrize(("said", "seconds"), [("90s", 90), ("5m", 300), (60, 60)])
def test_a_period_is_seconds_or_a_text(tmp_path, said, seconds):
    path = tmp_path / "t.json"
    fields = {"period": said, "jitter": "30s", "msg": {"dest": "q"}}
    path.write_text(json.dumps(fields))
    read = timer.parse(path)
    assert (read.period, read.jitter) == (seconds, 30)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "JSON object"),
        ('{"msg": {"dest": "q"}}', "'period' is missing"),
        ('{"period": 59, "msg": {"dest": "q"}}', "at least 60"),
        ('{"period": "1.5s", "msg": {"dest": "q"}}', "whole number"),
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


def written(tmp_path, message, **more):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"period": 60, "msg": message, **more}))
    return path


def test_every_field_of_a_message_is_taken(tmp_path):
    fields = {
        "param1": "a",
        "param4": 4,
        "due": 5,
        "src": "x",
        "max_count": 3,
        "post_run_webhook": ["http://h/x"],
        "force_remote": True,
        "colour": "red",
    }
    message = {"dest": "q", **fields, "param2": None}
    assert timer.parse(written(tmp_path, message)) == Timer("t", 60, "q", fields)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"perod": 5}, "unknown key 'perod'; did you mean 'period'"),
        (
            {"at": "03:00"},
            "unknown key 'at'; a timer has 'period' or 'cron', and 'msg'",
        ),
        ({"timezone": "UTC"}, "'timezone' is of 'cron', and there is none"),
        ({"max_count": 2}, "'max_count' is a field of the message: put it into 'msg'"),
        ({"post_run_webhook": ["http://h/x"]}, "put it into 'msg'"),
    ],
)
def test_a_key_that_no_timer_has_is_refused_with_the_right_one(tmp_path, more, told):
    with pytest.raises(BadConfig, match=told):
        timer.parse(written(tmp_path, {"dest": "q"}, **more))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"delay": 60}, "'delay' is no field of a message: say due"),
        ({"retries": 3}, "say max_count"),
        ({"after": 1}, "after is not a list of messages"),
        ({"priority": 10}, "priority is not a whole number from 0 to 9"),
        ({"max_cuont": 1}, "did you mean 'max_count'"),
        ({"max_count": "many"}, "max_count is not a whole number"),
        ({"post_run_webhook": "no url"}, "not a list of http URLs"),
        ({"param1": "a\0b"}, "NUL"),
        ({"_key": "k"}, "'_key' is set by RQ"),
        ({"msg_id": "20270115.0800.00.000.1"}, "'msg_id' is set by RQ"),
    ],
)
def test_a_field_that_would_be_without_effect_is_refused(tmp_path, fields, told):
    with pytest.raises(BadConfig, match=told):
        timer.parse(written(tmp_path, {"dest": "q", **fields}))


def test_a_fire_keeps_its_time_until_it_is_known_to_be_sent():
    past = Past(last=1000.0, begun=4600.0)
    for now in (4600.5, 4700.0, 90_000.0):
        assert nominal(HOUR, past, now) == 4600.0
        assert due(HOUR, past, now) == now
    assert HOUR.key(4600.0) == "timer/hour/4600.0"


def test_the_next_fire_counts_from_when_the_message_was_accepted():
    assert counts_from(HOUR, 4600.0, 4600.4) == 4600.0
    assert counts_from(HOUR, 4600.0, 4599.9996) == 4600.0  # ids hold milliseconds
    assert counts_from(HOUR, 4600.0, 9000.0) == 9000.0


@pytest.mark.parametrize("name", ["a b", "x" * 240, "a\nb", "\udcff"])
def test_every_name_of_a_file_makes_a_key_of_its_own(name):
    key = Timer(name, 60, "q", {}).key(1_800_000_000.123456)
    assert key.isprintable()
    assert len(key) <= 200
    assert key != Timer(name + "x", 60, "q", {}).key(1_800_000_000.123456)


@pytest.mark.parametrize("dest", ["http://h:1/q/x", "https://h/q/x"])
def test_a_remote_destination_goes_by_relay(dest):
    assert Timer("t", 60, dest, {}).queue == "relay"


@pytest.mark.parametrize("name", ["a.b.json", "a", "a.txt", "a.yaml", "a.json.bak"])
def test_other_names_are_no_timers(name):
    assert timer.refusal(name)


RULE = {"cron": "30 3 * * *", "timezone": "Europe/Berlin"}


def test_a_timer_of_cron_has_its_rule_and_settings(tmp_path):
    path = tmp_path / "t.json"
    settings = {"jitter": 300, "catch_up": "all", "overlap": "skip"}
    path.write_text(json.dumps({**RULE, **settings, "msg": {"dest": "q"}}))
    parsed = timer.parse(path)
    assert (parsed.period, parsed.rule) == (0, "30 3 * * * Europe/Berlin")
    assert (parsed.jitter, parsed.catch_up, parsed.overlap) == (300, "all", "skip")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"period": 60, **RULE}, "a timer has 'period' or 'cron', not both"),
        ({"cron": 5}, "'cron' or 'timezone' is no text"),
        ({"cron": "* * * * *", "timezone": None}, "'cron' or 'timezone' is no text"),
        ({"cron": "* * *"}, "has not the five fields of cron"),
        ({**RULE, "timezone": "Berlin"}, "there is no time zone 'Berlin'"),
        ({**RULE, "jitter": -1}, "whole seconds, 86400 at most"),
        ({**RULE, "jitter": True}, "whole seconds, 86400 at most"),
        ({**RULE, "jitter": 86401}, "whole seconds, 86400 at most"),
        (
            {"period": 60, "jitter": 61},
            "'jitter' is 61; it is whole seconds, 60 at most",
        ),
        ({**RULE, "catch_up": "some"}, "'catch_up' is 'some'; say last, none, all"),
        ({**RULE, "catch_up": []}, r"'catch_up' is \[\]; say last, none, all"),
        ({**RULE, "overlap": "kill"}, "'overlap' is 'kill'; say queue, skip, replace"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_in_a_sentence(tmp_path, settings, told):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**settings, "msg": {"dest": "q"}}))
    with pytest.raises(BadConfig, match=told):
        timer.parse(path)


@pytest.mark.parametrize("overlap", ["skip", "replace"])
def test_of_messages_elsewhere_it_is_not_known_whether_they_overlap(tmp_path, overlap):
    message = {"dest": "http://h:3333/q/x"}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**RULE, "overlap": overlap, "msg": message}))
    with pytest.raises(BadConfig, match="go to another host"):
        timer.parse(path)
    path.write_text(json.dumps({**RULE, "overlap": "queue", "msg": message}))
    assert timer.parse(path).overlap == "queue"
