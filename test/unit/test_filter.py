"""Which messages a filter means, and what a filter may say."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadInput
from rq.message import filter as filters
from rq.message.causes import Cause
from rq.message.filter import Filter, Traits, from_json, matches
from rq.message.group import group
from rq.words.states import COUNTED, State

MESSAGE = Traits(
    msg_id="20260102.0304.05.006.7",
    src="shop",
    params={"param1": "blue"},
    cause="script",
    text="Timeout of host a",
    since=100.0,
    key="sky",
)


def meant(**fields):
    return matches(from_json({"state": "err", **fields}), MESSAGE)


def test_a_filter_of_a_state_alone_means_all_of_it():
    wanted = from_json({"state": "err"})
    assert matches(wanted, Traits())
    assert not wanted.wants_message
    assert not wanted.wants_status


@pytest.mark.parametrize(
    ("fields", "is_meant"),
    [
        ({"param1": "blue"}, True),
        ({"param1": "blu"}, False),
        ({"key": "sky"}, True),
        ({"key": "sk"}, False),
        ({"param2": "blue"}, False),
        ({"param2": ""}, True),
        ({"param1": "blue", "cause": "crash"}, False),
        ({"cause": "script"}, True),
        ({"group": group("script", "Timeout of host a")}, True),
        ({"group": group("exit", "Timeout of host a")}, False),
        ({"group": group("script", "Timeout of host b")}, False),
        ({"group": ""}, False),
        ({"find": "blu HOST"}, True),
        ({"find": "0304.05"}, True),
        ({"find": "shop sky script"}, True),
        ({"find": "blue red"}, False),
        ({"text": "timeout"}, True),
        ({"text": "OF HOST"}, True),
        ({"text": "host b"}, False),
        ({"before": 100.0}, False),
        ({"before": 100.1}, True),
        ({"after": 100.0}, True),
        ({"after": 100.1}, False),
        ({"before": 200, "after": 50}, True),
    ],
)
def test_each_field_makes_them_fewer(fields, is_meant):
    assert meant(**fields) is is_meant


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "JSON object"),
        ({}, "one of prep, que"),
        ({"state": "gone"}, "one of prep, que"),
        ({"state": ["err"]}, "one of prep, que"),
        ({"state": "err", "colour": "blue"}, "no field colour"),
        ({"state": "err", "before": "yesterday"}, "not seconds since the epoch"),
        ({"state": "err", "after": True}, "not seconds since the epoch"),
        (
            {"state": "err", "cause": "nonsense"},
            "no cause is 'nonsense'; say one of after, bad_m",
        ),
        ({"state": "err", "text": 3}, "text of a filter is not a text"),
        ({"state": "err", "param1": "x" * 5000}, "at most 4096"),
        # Each takes milliseconds of its owner, for each large message that it looks at.
        ({"state": "err", "find": "x " * 17}, "more than 16 words"),
    ],
)
def test_what_is_no_filter_is_named(fields, said):
    with pytest.raises(BadInput, match=said):
        from_json(fields)


FIELDS = st.fixed_dictionaries(
    {"state": st.sampled_from([str(state) for state in COUNTED])},
    optional={
        **{name: st.text(max_size=5) for name in filters.NAMES[4:]},
        "cause": st.sampled_from(["", *map(str, Cause)]),
        "before": st.floats(0, 4e9),
        "after": st.floats(0, 4e9),
    },
)


@given(FIELDS)
def test_a_filter_survives_its_json(fields):
    wanted = from_json(fields)
    assert isinstance(wanted, Filter)
    assert isinstance(wanted.state, State)
    assert from_json(wanted.to_json()) == wanted
    assert wanted.to_json() == fields


def test_its_examples_are_true():
    assert doctest.testmod(filters).failed == 0


def test_an_age_is_a_moment_where_it_is_known_what_time_it_is():
    wanted = from_json({"state": "err", "older": "2d"}, 1_000_000.0)
    assert wanted.before == 1_000_000.0 - 2 * 86400
    assert from_json(wanted.to_json()) == wanted
    assert not from_json({"state": "err", "key": "x"}).wants_status
    assert from_json({"state": "err", "key": "x"}).wants_message


@pytest.mark.parametrize(
    "fields", [{"older": 5}, {"older": "soon"}, {"older": "1d", "before": 1.0}]
)
def test_an_age_that_makes_no_sense_is_refused(fields):
    with pytest.raises(BadInput):
        from_json({"state": "err", **fields}, 1.0)
    with pytest.raises(BadInput, match="no field older"):
        from_json({"state": "err", "older": "1d"})
