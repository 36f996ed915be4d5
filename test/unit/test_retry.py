"""The setting `retry`: which ends are tried again, how often and when; and what rules over
it."""

import dataclasses
import itertools

import pytest

from rq.config import queue_config
from rq.config.settings import QUEUE
from rq.message import causes, retry
from rq.message.causes import Cause
from rq.message.message import Message
from rq.queues.attempts import outcome
from rq.queues.attempts.outcome import Outcome
from rq.scripts.pipe import Said, Verb
from rq.words.states import Event

MSG_ID = "20270115.0800.00.000.1"
check = QUEUE["retry"]


def rule(**said):
    return check(said)


def message(count=0, max_count=15, attempt=1):
    return Message(
        msg_id=MSG_ID,
        dest="q",
        due=0.0,
        count=count,
        max_count=max_count,
        attempt=attempt,
    )


def ended(word=None, exit_status=0, signal=None, by=None, **said):
    """Return the word of an attempt, and what becomes of it without `retry`."""
    heard = Said(word=word, by=by, **said)
    return heard, outcome.decide(heard, exit_status, signal, 0, 15)


def again(
    setting, word=None, exit_status=0, signal=None, count=0, max_count=15, **said
):
    heard, decided = ended(word, exit_status, signal, **said)
    how = exit_status, signal
    about = message(count, max_count)
    return outcome.by_rule(decided, setting, heard.word, how, about)


# ---- what is made again


@pytest.mark.parametrize(
    ("on", "exit_status", "signal", "is_again"),
    [
        ([75], 75, None, True),
        ([75], 76, None, False),
        (["64-78"], 64, None, True),
        (["64-78"], 78, None, True),
        (["64-78"], 79, None, False),
        (["64-78"], 63, None, False),
        (["exit"], 1, None, True),
        (["exit"], None, "SIGKILL", False),
        (["signal"], None, "SIGKILL", True),
        (["SIGKILL"], None, "SIGKILL", True),
        (["SIGTERM"], None, "SIGKILL", False),
        (["signal"], 1, None, False),
        (["no_word"], 0, None, True),
        (["exit", "signal"], 0, None, False),
        (["timeout", "memory", "cpu", "crash"], 1, None, False),
        ([], 1, None, False),
    ],
)
def test_an_end_is_tried_again_if_it_is_named(on, exit_status, signal, is_again):
    decided = again(rule(on=on), None, exit_status, signal)
    assert (decided.event is Event.RETRY) == is_again
    assert (decided.event is Event.FAIL) != is_again


def test_a_rule_with_all_words_covers_the_causes_that_have_one():
    assert (
        *("exit", "signal", "no_word", "timeout", "memory", "cpu", "crash"),
    ) == causes.WORDS
    every = rule(on=list(causes.WORDS))
    for cause in Cause:
        assert retry.covers(every, cause, 3, "SIGKILL") == bool(cause.row.on), cause
    assert not retry.covers(every, "unheard_of")


ALL = rule()


@pytest.mark.parametrize(
    ("word", "exit_status", "said", "event", "cause"),
    [
        (Verb.ERR, 1, {}, Event.FAIL, Cause.SAID_ERR),
        (Verb.ERR, 0, {}, Event.FAIL, Cause.SAID_ERR),
        (Verb.RESEND, 0, {}, Event.RETRY, Cause.RESEND),
        (Verb.RESEND, 1, {}, Event.FAIL, Cause.EXIT),
        (Verb.LATER, 1, {}, Event.FAIL, Cause.EXIT),
        (Verb.FORWARD, 1, {"dest": "b"}, Event.FAIL, Cause.EXIT),
        (Verb.DONE, 1, {}, Event.RETRY, Cause.EXIT),  # a failed exit
        (Verb.DONE, 0, {}, Event.FINISH, Cause.DONE),
        (None, 1, {"by": "ann"}, Event.FAIL, Cause.CANCELLED),
        (None, 1, {"unreadable": "x"}, Event.FAIL, Cause.BAD_REPORT),
    ],
)
def test_what_was_said_rules_over_it(word, exit_status, said, event, cause):
    decided = again(ALL, word, exit_status, **said)
    assert (decided.event, decided.cause) == (event, cause)


def test_without_the_setting_nothing_changes():
    for word, status in itertools.product([None, *Verb], [0, 1, 75]):
        heard, decided = ended(word, status)
        assert (
            outcome.by_rule(decided, None, heard.word, (status, None), message())
            == decided
        )


# ---- how often


@pytest.mark.parametrize(
    ("times", "max_count", "tries"),
    [(None, 15, 15), (3, 15, 4), (0, 15, 1), (20, 15, 15), (3, 2, 2), (None, 1, 1)],
)
def test_times_lower_max_count_and_never_raise_it(times, max_count, tries):
    setting = rule(times=times)
    events = []
    for count in range(tries):
        decided = again(setting, None, 1, count=count, max_count=max_count)
        events.append(decided.event)
        assert decided.tries == tries
    assert events == [Event.RETRY] * (tries - 1) + [Event.FAIL]
    assert decided.is_last
    assert decided.cause is Cause.EXIT


def test_a_failure_that_is_not_named_is_not_the_last_of_some():
    assert not again(rule(on=[75]), None, 1).is_last


def test_a_lost_attempt_of_a_batch_runs_again_though_it_is_not_named():
    lost = outcome.decide_in_batch(Said(), Said(), 1, None, message())
    assert lost.cause is Cause.BATCH
    same = outcome.by_rule(lost, rule(on=[75], wait=60), None, (1, None), message())
    assert same == lost
    named = outcome.by_rule(lost, rule(on=[1], wait=60), None, (1, None), message())
    assert (named.event, named.delay, named.cause) == (Event.RETRY, 60.0, Cause.BATCH)
    over = outcome.by_rule(lost, rule(on=[], times=0), None, (1, None), message())
    assert (over.event, over.cause) == (Event.FAIL, Cause.CRASH_LIMIT)


# ---- when


def waits(wait, number=6):
    setting = rule(wait=wait)
    return [again(setting, None, 1, count=count).delay for count in range(number)]


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (0, [0, 0, 0]),
        (60, [60, 60, 60]),
        ("5m", [300, 300, 300]),
        ({"first": 10}, [10, 20, 40]),
        ({"first": 10, "factor": 3, "cap": 50}, [10, 30, 50]),
        ({"first": "1m", "factor": 1}, [60, 60, 60]),
    ],
)
def test_waits_grow_up_to_their_cap(wait, seconds):
    assert waits(wait, 3) == seconds


def test_a_wait_that_no_number_holds_is_the_cap():
    setting = rule(wait={"first": 1, "factor": 1000, "cap": 600})
    assert retry.wait(setting, 10**6, MSG_ID, 1) == 600.0


def test_jitter_is_bounded_and_the_same_for_whoever_asks():
    setting = rule(wait={"first": 100, "factor": 1, "jitter": 0.1})
    drawn = [retry.wait(setting, 0, MSG_ID, attempt) for attempt in range(1, 200)]
    assert drawn == [
        retry.wait(setting, 0, MSG_ID, attempt) for attempt in range(1, 200)
    ]
    assert all(90.0 <= seconds <= 110.0 for seconds in drawn)
    assert max(drawn) - min(drawn) > 15.0
    other = retry.wait(setting, 0, "20270115.0800.00.000.2", 1)
    assert other != drawn[0]


def test_jitter_never_exceeds_the_cap():
    setting = rule(wait={"first": 100, "cap": 100, "jitter": 1})
    assert all(retry.wait(setting, 3, MSG_ID, n) <= 100.0 for n in range(100))


# ---- what it says


def test_the_status_does_not_say_that_the_message_goes_to_err():
    assert "MOVING TO ERR" not in again(ALL, None, 75).text
    assert "RUNNING IT AGAIN" in again(ALL, None, 75).text
    assert "MOVING TO ERR" in again(rule(times=0), None, 75).text


def test_a_decision_names_its_outcome():
    decided = again(ALL, None, 75)
    assert decided.name == "retry"
    assert dataclasses.replace(decided, event=Event.FAIL).name == "err"
    assert isinstance(decided, Outcome)


# ---- the setting


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (7, "not an object"),
        ({"tries": 3}, "'tries'"),
        ({"on": "exit"}, "on:"),
        ({"on": [0]}, "on: 0"),
        ({"on": [256]}, "on: 256"),
        ({"on": ["9-8"]}, "'9-8'"),
        ({"on": ["sigkill"]}, "'sigkill'"),
        ({"on": ["SIGNOTHING"]}, "'SIGNOTHING'"),
        ({"on": [True]}, "on: True"),
        ({"on": [[]]}, "on: []"),
        ({"on": [1] * 101}, "at most 100"),
        ({"times": -1}, "times: -1"),
        ({"times": 1.5}, "times: 1.5"),
        ({"times": True}, "times: True"),
        ({"wait": -1}, "wait: -1"),
        ({"wait": 86_401}, "wait: 86401"),
        ({"wait": "soon"}, "wait: "),
        ({"wait": True}, "wait: True"),
        ({"wait": {}}, "lacks first"),
        ({"wait": {"first": 1, "facter": 2}}, "'facter'"),
        ({"wait": {"first": 1, "factor": 0.5}}, "factor: 0.5"),
        ({"wait": {"first": 1, "cap": float("nan")}}, "cap: nan"),
        ({"wait": {"first": 1, "jitter": 1.1}}, "jitter: 1.1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(said, wrong, tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(Exception, match="retry: ") as caught:
        queue_config({"script": "run", "retry": said}, path)
    assert wrong in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_setting_is_whole_and_json():
    setting = queue_config({"script": "run", "retry": {}}, None).to_json()["retry"]
    assert setting == {
        "on": list(causes.WORDS),
        "times": None,
        "wait": {"first": 0.0, "factor": 1.0, "cap": 86400.0, "jitter": 0.0},
    }
    assert check(setting) == setting
