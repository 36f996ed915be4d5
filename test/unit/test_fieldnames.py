"""What a new message may not call its fields, and what it may."""

import doctest
import string

import pytest
from harness.spool import a_message
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadMessage
from rq.message import fieldnames
from rq.message.fieldnames import _OFTEN, RESERVED, check, is_handed_on
from rq.message.table import FIELDS, SAID_BY_SENDERS

SENT_BY_THE_ANCESTOR = [
    "dest", "src", "count", "max_count", "param1", "param2", "param3", "param4",
    "post_run_webhook", "orig_msg_id", "due", "force_remote", "_method", "status",
]  # fmt: skip


def refused(name):
    with pytest.raises(BadMessage) as caught:
        check({"dest": "q", name: 1})
    text = str(caught.value)
    assert text.startswith(f"{name!r} is ")
    return text


def test_the_examples_are_true():
    assert doctest.testmod(fieldnames).failed == 0


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("delay", "say due"),
        ("eta", "say due"),
        ("runAt", "say due"),
        ("retries", "say max_count"),
        ("max_retries", "say max_count"),
        ("attempts", "say max_count"),
        ("webhook", "say post_run_webhook"),
        ("idempotency_key", "say _key"),
        ("ttl", "say deadline"),
        ("time_limit", "say timeout"),
        ("depends_on", "say after"),
        ("Due", "did you mean 'due'"),
        ("maxCount", "did you mean 'max_count'"),
        ("max-count", "did you mean 'max_count'"),
        ("max_cuont", "did you mean 'max_count'"),
        ("postrun_webhook", "did you mean 'post_run_webhook'"),
        ("counts", "did you mean 'count'"),
        ("force_remot", "did you mean 'force_remote'"),
        ("parm1", "did you mean 'param1'"),
        ("Param2", "did you mean 'param2'"),
        ("attachment", "did you mean 'attachments', which RQ alone writes"),
    ],
)
def test_a_near_miss_is_refused_with_the_right_name(name, right):
    assert right in refused(name)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_what_steering_will_be_called_is_reserved(name):
    assert "reserved" in refused(name)
    assert f"x_{name}" in refused(name)
    check({"dest": "q", f"x_{name}": 1})


@pytest.mark.parametrize(
    "name",
    [
        "param5", "param10", "param0", "x_delay", "X_Retries", "x-priority", "colour",
        "customer", "amount", "discount", "user", "queue", "data", "desk", "destiny",
        "_retries_of_mine", "grade", "trace", "path", "stats", "x" * 1000, "", "\u202e",
    ],
)  # fmt: skip
def test_a_field_of_ones_own_is_none_of_rqs_business(name):
    check({"dest": "q", name: 1})


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_no_field_of_rq_is_refused(name):
    check({"dest": "q", name: 1})


def test_the_ancestors_clients_go_on_working():
    check(dict.fromkeys(SENT_BY_THE_ANCESTOR, "1"))


def test_what_a_reader_is_told_may_be_sent_again():
    told = a_message(param1="a", src="b", colour="red").to_json()
    check({**told, "result": {}, "phase": "x", "rebuilt": True, "removed_at": 1.0})


@given(
    st.sampled_from(sorted(one for one in SAID_BY_SENDERS - _OFTEN if len(one) >= 5)),
    st.integers(0, 16),
    st.sampled_from(string.ascii_lowercase),
    st.sampled_from(["more", "less", "other", "swapped"]),
)
def test_every_name_one_edit_away_from_a_long_field_is_refused(field, at, letter, edit):
    at %= len(field)
    name = {
        "more": field[:at] + letter + field[at:],
        "less": field[:at] + field[at + 1 :],
        "other": field[:at] + letter + field[at + 1 :],
        "swapped": field[:at] + field[at : at + 2][::-1] + field[at + 2 :],
    }[edit]
    if name in FIELDS or name.startswith("x_"):
        check({name: 1})
    else:
        refused(name)


def test_a_message_of_very_many_fields_does_not_hold_up_its_owner(monkeypatch):
    """Each name once went through a comparison with each of ours: 24 s for a megabyte."""
    compared = []
    edits = fieldnames._one_edit
    monkeypatch.setattr(
        fieldnames, "_one_edit", lambda *pair: compared.append(pair) or edits(*pair)
    )
    check({f"name{number}": 1 for number in range(5000)})
    assert len(compared) < 5000


@pytest.mark.parametrize("odd", ["\n", "\r", "\u202e", "\x1b"])
def test_a_name_that_is_refused_is_said_so_that_all_of_it_is_seen(odd):
    with pytest.raises(BadMessage) as refusal:
        check({f"max_count{odd}": 1})
    assert odd not in str(refusal.value)


@given(st.text(max_size=50))
def test_any_name_is_taken_or_refused_in_one_sentence(name):
    said = ""
    try:
        check({name: 1})
    except BadMessage as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("fields", "key", "handed_on"),
    [
        ({}, None, False),
        ({}, "shop/1", False),
        ({}, "relay/abc", True),
        ({"orig_msg_id": "http://h:3333/q/x/1"}, None, True),
        ({"orig_msg_id": ""}, None, False),
    ],
)
def test_what_another_rq_hands_on_is_known_by_its_key_or_its_first(
    fields, key, handed_on
):
    assert is_handed_on(fields, key) is handed_on
