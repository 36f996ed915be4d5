"""Arguments of commands: what each kind takes, and what it says of anything else."""

import pytest

from rq.errors import BadInput
from rq.queues import arguments as of

WHOLE = [(0, 0), (1, 1), (7, 7), (None, "default")]
NOT_WHOLE = [-1, 8, 1.0, "1", True, False, [], {}]
LIMITS = [
    *((1, 1), (20, 20), (21, 20), (0, 20), (-1, 20)),
    *(("5", 5), ("-5", 20), ("0", 20), ("999999999", 20)),
]
NO_LIMITS = [None, "", "x", "1.0", " 1", "²", "1234567890", 1.5, True, [], {}]
SECONDS = [(None, 9.0), (1, 1.0), (2.5, 2.5), (3, 3.0)]
NO_SECONDS = [0.99, 3.01, -1, "2", True, [], float("nan"), float("inf")]


@pytest.mark.parametrize(("value", "read"), WHOLE)
def test_a_whole_number_is_from_0_to_the_most(value, read):
    assert of.whole({"n": value}, "n", "default", 7) == read
    assert of.whole({}, "n", "default", 7) == "default"
    assert of.whole({"n": 10**12}, "n", 0) == 10**12


@pytest.mark.parametrize("value", NOT_WHOLE)
def test_what_is_no_whole_number_is_refused_with_its_bounds(value):
    with pytest.raises(BadInput, match=r"n is .*, and not a whole number up to 7$"):
        of.whole({"n": value}, "n", 0, 7)


def test_a_number_below_0_is_refused_where_there_is_no_most():
    with pytest.raises(BadInput, match=r"n is -1, and not a whole number from 0 up$"):
        of.whole({"n": -1}, "n", 0)


@pytest.mark.parametrize(("value", "read"), LIMITS)
def test_a_limit_is_as_many_as_may_be_where_it_says_none(value, read):
    assert of.limit({"limit": value}, 3, 20) == read
    assert of.limit({}, 3, 20) == 3


@pytest.mark.parametrize("value", NO_LIMITS)
def test_what_is_no_limit_is_refused(value):
    with pytest.raises(BadInput, match=r"^limit is .*, and not a whole number$"):
        of.limit({"limit": value}, 3, 20)


@pytest.mark.parametrize(("value", "read"), SECONDS)
def test_seconds_are_numbers_within_their_bounds(value, read):
    got = of.seconds({"s": value}, "s", 9.0, 1, 3)
    assert (got, type(got)) == (read, float)


@pytest.mark.parametrize("value", NO_SECONDS)
def test_what_are_no_seconds_is_refused(value):
    with pytest.raises(BadInput, match=r"^s is .*, and not (a number|between 1 and 3)"):
        of.seconds({"s": value}, "s", 9.0, 1, 3)


@pytest.mark.parametrize(("value", "read"), [(None, ""), ("", ""), ("héé", "héé")])
def test_a_visible_text_is_taken_up_to_its_length(value, read):
    assert of.visible({"t": value}, "t", 3) == read


@pytest.mark.parametrize("value", ["four", "a\n", "\u202e", 3, True, ["a"]])
def test_a_text_that_is_long_or_not_seen_is_refused(value):
    with pytest.raises(BadInput, match="t is not a text of at most 3 visible"):
        of.visible({"t": value}, "t", 3)


def test_a_list_has_one_to_the_most():
    for size in (1, 3):
        assert of.listed({"l": [None] * size}, "l", 3) == [None] * size
    for wrong in ({}, {"l": None}, {"l": []}, {"l": [1] * 4}, {"l": "abc"}):
        with pytest.raises(BadInput, match="l is not a list of 1 to 3"):
            of.listed(wrong, "l", 3)


def test_a_token_is_a_text():
    assert of.token("") == ""
    for wrong in (None, 1, ["x"]):
        with pytest.raises(BadInput, match=r"token is .*, and not a text"):
            of.token(wrong)
