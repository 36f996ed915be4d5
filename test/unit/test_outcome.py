"""What becomes of a message when its script has ended (spec: exit status and words)."""

import itertools

import pytest

from rq.message.causes import Cause
from rq.message.message import Message
from rq.queues.attempts.outcome import Outcome, decide, decide_in_batch
from rq.scripts import pipe
from rq.scripts.pipe import Said, Verb
from rq.words.states import Event

WORDS = [None, *Verb]


def said(*lines):
    heard = Said()
    for line in lines:
        heard.hear(pipe.parse(line))
    return heard


@pytest.mark.parametrize(
    ("lines", "exit_status", "count", "event", "cause", "text"),
    [
        ([b"done ok"], 0, 0, Event.FINISH, Cause.DONE, "ok"),
        ([b"relayed http://h/1"], 0, 0, Event.RELAY, Cause.RELAYED, "http://h/1"),
        ([b"err bad"], 0, 0, Event.FAIL, Cause.SAID_ERR, "bad"),
        ([b"err bad"], 1, 0, Event.FAIL, Cause.SAID_ERR, "bad"),
        ([b"fail bad"], 7, 0, Event.FAIL, Cause.SAID_ERR, "bad"),
        ([b"fails bad"], 0, 0, Event.FAIL, Cause.SAID_ERR, "bad"),
        ([b"resend 5-x"], 0, 0, Event.RETRY, Cause.RESEND, "5-x"),
        ([b"resend 5-x"], 0, 13, Event.RETRY, Cause.RESEND, "5-x"),
        ([b"later 5-x"], 0, 99, Event.RETRY, Cause.LATER, "5-x"),
        ([b"later soon"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        ([b"later 5@h x y"], 0, 99, Event.RETRY, Cause.LATER, "5@h x y"),
        ([b"later 5@"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        ([b"later @h x"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        ([b"resend 5@h x"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        (
            [b"resend 5-x"],
            0,
            14,
            Event.FAIL,
            Cause.RESEND_LIMIT,
            "HIT MAX RESEND COUNT - MOVING TO ERR - 5-x",
        ),
        ([b"run half"], 0, 0, Event.FAIL, Cause.NO_WORD, "half"),
        ([], 0, 0, Event.FAIL, Cause.NO_WORD, ""),
        ([b"dup 0-X-q", b"done ok"], 0, 0, Event.FINISH, Cause.DONE, "ok"),
        # The first word decides, the text is that of the last line.
        ([b"done ok", b"err bad"], 0, 0, Event.FINISH, Cause.DONE, "bad"),
        ([b"err bad", b"done ok"], 0, 0, Event.FAIL, Cause.SAID_ERR, "ok"),
        ([b"resend 5-x", b"done ok"], 0, 0, Event.RETRY, Cause.RESEND, "ok"),
        ([b"forward b"], 0, 0, Event.FINISH, Cause.FORWARDED, "forwarded to b"),
        ([b"forward b", b"run x"], 0, 0, Event.FINISH, Cause.FORWARDED, "x"),
        ([b"done", b"forward b"], 0, 0, Event.FINISH, Cause.DONE, "b"),
        ([b"forward"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        ([b"forward b c"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        ([b"resend soon"], 0, 0, Event.FAIL, Cause.BAD_REPORT, None),
        ([b"done ok", b"resend soon"], 0, 0, Event.FINISH, Cause.DONE, "soon"),
    ],
)
def test_the_first_word_and_the_exit_status_decide(
    lines, exit_status, count, event, cause, text
):
    decided = decide(said(*lines), exit_status, None, count, 15)
    assert (decided.event, decided.cause) == (event, cause)
    assert text is None or decided.text == text


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([], "none"),
        ([b"done ok"], "done"),
        ([b"resend 5-x"], "resend"),
        ([b"run"], "none"),
    ],
)
def test_a_bad_exit_is_an_error_whatever_was_said(lines, word):
    prefix = (
        "PROCESS EXITED IMPROPERLY - MOVING TO ERR - "
        f"Completion was {word} but exit status was "
    )
    by_status = decide(said(*lines), 3, None, 0, 15)
    assert (by_status.event, by_status.cause) == (Event.FAIL, Cause.EXIT)
    assert by_status.text.startswith(prefix + "3")
    by_signal = decide(said(*lines), None, "SIGKILL", 0, 15)
    assert (by_signal.event, by_signal.cause) == (Event.FAIL, Cause.SIGNAL)
    assert by_signal.text.startswith(prefix + "SIGKILL")


@pytest.mark.parametrize("word", WORDS)
def test_every_end_has_an_outcome_and_only_a_clean_one_is_good(word):
    line = {None: b"hello", Verb.RESEND: b"resend 1-x", Verb.DUP: b"dup 1-X-q"}
    for exit_status, count in itertools.product([0, 1, 255, None], [0, 14, 100]):
        heard = said(line.get(word, str(word).encode()))
        signal = "SIGTERM" if exit_status is None else None
        decided = decide(heard, exit_status, signal, count, 15)
        assert isinstance(decided, Outcome)
        assert decided.name in {"done", "relayed", "err", "retry"}
        if exit_status != 0 or word in (None, Verb.RUN, Verb.DUP, Verb.ERR):
            assert decided.event is Event.FAIL, (exit_status, count)
        if decided.event is Event.RETRY:
            assert count + 1 < 15, exit_status


def test_each_run_starts_with_nothing_said():
    first = said(b"resend 0-x", b"done ok")
    second = said(b"err bad")
    assert decide(first, 0, None, 0, 15).event is Event.RETRY
    assert decide(second, 0, None, 1, 15).event is Event.FAIL


def test_a_cancelled_message_ends_in_err_and_names_who():
    heard = said(b"done ok")
    heard.by = "alice"
    decided = decide(heard, 0, None, 0, 15)
    assert decided.event is Event.FAIL
    assert decided.text == "cancelled by alice"


def test_the_delay_is_that_of_the_resend_that_decides():
    assert decide(said(b"resend 5-x", b"resend 99-y"), 0, None, 0, 15).delay == 5.0


# ---- in a batch


def tried(count=0, **fields):
    return Message(
        msg_id="20270115.0800.00.000.1", dest="q", due=0, count=count, **fields
    )


def in_batch(own, batch, status=0, signal=None, count=0):
    exit_status = None if signal else status
    message = tried(count)
    decided = decide_in_batch(said(*own), said(*batch), exit_status, signal, message)
    return decided.event, decided.cause


@pytest.mark.parametrize("status", [0, 1, None])
@pytest.mark.parametrize("batch", [[], [b"done"], [b"err all"], [b"resend soon"]])
@pytest.mark.parametrize(
    ("own", "then"),
    [
        ([b"done x"], (Event.FINISH, Cause.DONE)),
        ([b"relayed x"], (Event.RELAY, Cause.RELAYED)),
        ([b"err x"], (Event.FAIL, Cause.SAID_ERR)),
        ([b"resend 5-x"], (Event.RETRY, Cause.RESEND)),
        ([b"later 5-x"], (Event.RETRY, Cause.LATER)),
        ([b"resend x"], (Event.FAIL, Cause.BAD_REPORT)),
    ],
)
def test_what_was_said_of_one_stands_whatever_becomes_of_its_batch(
    own, then, batch, status
):
    signal = "SIGKILL" if status is None else None
    assert in_batch(own, batch, status, signal) == then


def test_one_that_asks_again_once_too_often_fails_in_a_batch_too():
    limit = Event.FAIL, Cause.RESEND_LIMIT
    assert in_batch([b"resend 5-x"], [b"done"], count=14) == limit
    assert in_batch([], [b"resend 5-x"], count=14) == limit


@pytest.mark.parametrize(
    ("batch", "then"),
    [
        ([b"done x"], (Event.FINISH, Cause.DONE)),
        ([b"relayed x"], (Event.RELAY, Cause.RELAYED)),
        ([b"err x"], (Event.FAIL, Cause.SAID_ERR)),
        ([b"resend 5-x"], (Event.RETRY, Cause.RESEND)),
        ([b"later 5-x"], (Event.RETRY, Cause.LATER)),
        ([b"resend x"], (Event.FAIL, Cause.BAD_REPORT)),
        ([b"run x"], (Event.RETRY, Cause.BATCH)),
        ([], (Event.RETRY, Cause.BATCH)),
    ],
)
def test_the_last_word_is_for_those_of_which_nothing_was_said(batch, then):
    assert in_batch([b"run half"], batch) == then


@pytest.mark.parametrize(("status", "signal"), [(1, None), (None, "SIGKILL")])
@pytest.mark.parametrize(
    ("batch", "cause"),
    [
        ([], Cause.BATCH),
        ([b"done"], Cause.BATCH),
        ([b"resend 5-x"], Cause.BATCH),
        ([b"later 5-x"], Cause.BATCH),
        ([b"err x"], Cause.SAID_ERR),
        ([b"resend x"], Cause.BAD_REPORT),
    ],
)
def test_a_process_that_dies_is_believed_only_that_it_failed(
    batch, cause, status, signal
):
    event = Event.RETRY if cause is Cause.BATCH else Event.FAIL
    assert in_batch([], batch, status, signal) == (event, cause)


@pytest.mark.parametrize(
    ("count", "delay"), [(0, 1.0), (1, 2.0), (5, 32.0), (6, 60.0), (13, 60.0)]
)
def test_each_loss_of_a_batch_lets_its_messages_wait_longer(count, delay):
    decided = decide_in_batch(said(), said(), 1, None, tried(count))
    assert decided.delay == delay


def test_a_batch_lost_once_too_often_fails_its_messages():
    assert in_batch([], [], 1, count=14) == (Event.FAIL, Cause.CRASH_LIMIT)
    decided = decide_in_batch(said(), said(), 1, None, tried(14, lost_attempts=2))
    assert decided.text == (
        "its attempt was lost 3 times; tries used: 15 - its batch ended with exit status 1; "
        "it reported nothing"
    )


def test_a_batch_that_was_cancelled_fails_those_that_had_not_ended():
    batch = said(b"done")
    batch.by = "Ada"
    decided = decide_in_batch(said(), batch, 0, None, tried())
    assert (decided.event, decided.cause) == (Event.FAIL, Cause.CANCELLED)
    own = decide_in_batch(said(b"done"), batch, 1, None, tried())
    assert own.event is Event.FINISH
