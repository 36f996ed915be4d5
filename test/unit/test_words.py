"""Small rules: back-off, log fields, and the examples in the documentation."""

import doctest
import importlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq import back_off, logs
from rq.words import wording

DOCUMENTED = ["rq.names", "rq.back_off", "rq.words.wording", "rq.logs"]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_examples_of_a_module_are_true(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)
FIGURES = ("files", "bytes", "rows_in", "rejected", "outputs", "spark_us")


@given(ANYTHING, st.dictionaries(st.sampled_from(FIGURES), ANYTHING))
def test_a_result_that_only_looks_like_figures_is_shown_as_text(messages, figures):
    text = json.dumps({"messages": messages, **figures})
    assert all(isinstance(words, str) for row in wording.figures(text) for words in row)


@pytest.mark.parametrize(
    "text", ["[" * 9000, '{"messages": 1, "files": 2}', '"messages"', "[1]", "null"]
)
def test_another_result_is_shown_as_it_is(text):
    assert wording.figures(text) == [("result", text)]


@given(st.integers(-5, 10**9), st.floats(0.001, 10), st.floats(10, 1000))
def test_back_off_grows_and_stays_below_its_ceiling(attempts, first, ceiling):
    now = back_off.delay(attempts, first, ceiling)
    assert 0 <= now <= back_off.delay(attempts + 1, first, ceiling) <= ceiling
    assert now > 0 or attempts <= 0


@given(st.text(max_size=60))
def test_a_log_field_is_one_printable_line_that_can_be_told_apart(text):
    shown = logs.fields(reason=text, next=1)
    assert shown.isprintable()
    assert shown.endswith(" next=1")
    value = shown.removeprefix("reason=").removesuffix(" next=1")
    assert value.startswith('"') == value.endswith('"')
    if not value.startswith('"'):
        assert value == text


def test_a_forged_field_stays_inside_its_quotes():
    shown = logs.fields(reason='x" outcome=done\nE 2027 fake')
    assert shown == 'reason="x\\" outcome=done\\nE 2027 fake"'
