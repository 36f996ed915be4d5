"""Every cause has its story, and no story has holes."""

import pytest

from rq.message import next_attempt
from rq.message.causes import Cause, of
from rq.message.stories import story
from rq.words.states import State

IMPROPER = "PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was {} but exit status was {}"
FACTS = {
    "id": "20270115.0800.00.000.1",
    "job_status": "no room left",
    "attempt": 2,
    "count": 1,
    "max_count": 15,
    "exit": 3,
    "signal": "SIGKILL",
    "run_us": 1_500_000,
    "leased": "",
    "waiting": "its turn has not come",
}
STATES = [one for one in State if one not in (State.NOWHERE, State.GONE)]


@pytest.mark.parametrize("cause", Cause)
def test_a_story_answers_three_questions_and_has_no_holes(cause):
    for state in STATES:
        told = story(state, {**FACTS, "cause": cause}).to_json()
        assert list(told) == ["what", "why", "todo"], state
        for sentence in told.values():
            assert sentence, state
            assert "?" not in sentence, state
            assert "{" not in sentence, state


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_story_of_its_own(cause):
    end = State.QUE if "wait" in cause.row.what else State.ERR
    told = story(end, {**FACTS, "cause": cause})
    assert told != story(end, FACTS)


@pytest.mark.parametrize("cause", Cause)
def test_a_list_of_attempts_tells_each_cause_in_a_few_words(cause):
    told = next_attempt.how({**FACTS, "outcome": "err", "cause": cause})
    assert told.startswith(cause.row.how)
    assert cause.row.brief in told
    assert told != cause


def test_a_word_leads_to_its_cause_and_no_other_does():
    assert [of(str(cause)) for cause in Cause] == list(Cause)
    assert [of(word) for word in ("unheard_of", "", None, 7, [])] == [None] * 5


@pytest.mark.parametrize("state", STATES)
def test_a_state_without_a_cause_has_a_story_too(state):
    told = story(state, FACTS)
    assert "?" not in told.what + told.why + told.todo


@pytest.mark.parametrize("cause", [*Cause, "unheard_of", None, 7])
def test_missing_facts_are_shown_as_missing(cause):
    for state in STATES:
        told = story(state, {"cause": cause})
        assert told.what, state
        assert "{" not in told.what + told.why + told.todo, state


@pytest.mark.parametrize("text", ["{id}", "{}", "{0}", "a{", "%s"])
def test_the_words_of_a_script_are_never_a_template(text):
    told = story(State.ERR, {**FACTS, "cause": "said_err", "job_status": text})
    assert text in told.why


@pytest.mark.parametrize(
    ("cause", "text", "why"),
    [
        (
            "exit",
            IMPROPER.format("none", 3),
            "The script exited with status 3; only 0 is success. It reported nothing; its log may say more.",
        ),
        (
            "exit",
            IMPROPER.format("done", 3) + " - all well",
            "The script exited with status 3 after it had reported done; only 0 is "
            "success. Its last words: all well.",
        ),
        (
            "signal",
            IMPROPER.format("none", "SIGKILL") + " - half way",
            "The script was killed by SIGKILL. Its last words: half way.",
        ),
        (
            "cancelled",
            "cancelled by drew@host",
            "It was cancelled by drew@host while it ran.",
        ),
        (
            "refused",
            "forward failed - status: DOWN",
            "What it had to hand on was refused: the queue is DOWN.",
        ),
    ],
)
def test_what_programs_read_is_told_to_people_in_sentences(cause, text, why):
    told = story(State.ERR, {**FACTS, "cause": cause, "job_status": text})
    assert told.why == why


def test_what_a_script_said_instead_of_done_is_told():
    told = story(State.ERR, {**FACTS, "cause": "no_word", "job_status": "hurray"})
    assert told.why.endswith(
        "never reported done, err or resend; its last words: hurray."
    )


def test_one_that_waits_for_a_host_is_told_whether_something_is_to_be_done():
    text = "64@http://h:1 h is an internal address: `rq relay allow h:1`"
    told = story(State.QUE, {**FACTS, "cause": "later", "job_status": text})
    assert "later: http://h:1 cannot take it: h is an internal address" in told.why
    assert told.todo.startswith("Nothing, if that passes by itself")


def test_a_message_that_waits_is_told_its_cause_and_what_it_waits_for():
    facts = {**FACTS, "cause": "resend", "job_status": "60-no route"}
    told = story(State.QUE, {**facts, "waiting": "It is due in 60 s."})
    assert told.why.endswith("(retry 1 of 15): no route. It is due in 60 s.")
    gone = {**FACTS, "cause": "script", "job_status": "/x: No such file"}
    told = story(State.QUE, {**gone, "waiting": "It cannot start: /x: No such file."})
    assert told.why.count("/x") == 1


def test_an_attempt_without_a_script_tells_of_none():
    """Who works under a lease may be no script, and then nothing has exited."""
    facts = {"cause": "done", "job_status": "", "attempt": 1, "run_us": 5}
    leased = {**facts, "lease": {"by": "ann/x"}}
    assert story(State.DONE, leased).why == "Its worker ann/x reported done."
    by_script = "The script reported done and exited with 0."
    assert story(State.DONE, {**leased, "exit": 0}).why == by_script
    assert story(State.DONE, {**facts, "exit": 0}).why == by_script
    failed = {**leased, "cause": "said_err", "job_status": "broken"}
    assert story(State.ERR, failed).why == "Its worker ann/x reported err: broken."


def test_of_what_is_at_work_nobody_tells_more_than_he_knows():
    """The folder of a message does not tell whether a script or a lease is at work."""
    told = story(State.RUN, {**FACTS, "unseen": "The queue is DOWN."})
    assert "script" not in told.what + told.why
    assert "attempt 2" not in told.what
    assert told.why.endswith("The queue is DOWN.")


def test_a_story_tells_how_often_an_attempt_was_lost_where_that_is_known():
    facts = {**FACTS, "cause": "crash_limit", "job_status": "", "count": 15}
    once = story(State.ERR, {**facts, "lost_attempts": 1})
    assert once.what.startswith("It failed: its attempt was lost once, and")
    assert "(tries used: 15)" in once.why
    before = story(State.ERR, facts)  # RQ did not count them apart then
    assert before.what.startswith(
        f"It failed: attempt {FACTS['attempt']} was lost, and"
    )


def test_a_story_names_the_limit_of_the_retries_that_holds():
    facts = {**FACTS, "cause": "host", "job_status": "lost", "count": 4}
    assert "(retry 4 of 15)" in story(State.QUE, facts).why
    assert "(retry 4 of 4)" in story(State.QUE, {**facts, "tries": 5}).why
    assert "(retry 4 of 15)" in story(State.QUE, {**facts, "tries": 15}).why
