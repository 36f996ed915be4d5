"""Every cause has its story, and no story has holes."""

import pytest

from rq.causes import STORIES, Cause, story
from rq.states import State

FACTS = {
    "id": "20270115.0800.00.000.1",
    "job_status": "no room left",
    "attempt": 2,
    "count": 1,
    "max_count": 15,
    "exit": 3,
    "signal": "SIGKILL",
    "run_us": 1_500_000,
    "waiting": "its turn has not come",
}
STATES = [one for one in State if one not in (State.NOWHERE, State.GONE)]


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("state", STATES)
def test_a_story_answers_three_questions_and_has_no_holes(state, cause):
    told = story(state, {**FACTS, "cause": cause}).to_json()
    assert list(told) == ["what", "why", "todo"]
    for sentence in told.values():
        assert sentence
        assert "?" not in sentence
        assert "{" not in sentence


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_story_of_its_own(cause):
    assert cause in STORIES
    end = State.QUE if "wait" in STORIES[cause].what else State.ERR
    told = story(end, {**FACTS, "cause": cause})
    assert told != story(end, FACTS)


@pytest.mark.parametrize("state", STATES)
def test_a_state_without_a_cause_has_a_story_too(state):
    told = story(state, FACTS)
    assert "?" not in told.what + told.why + told.todo


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cause", [*Cause, "unheard_of", None, 7])
def test_missing_facts_are_shown_as_missing(state, cause):
    told = story(state, {"cause": cause})
    assert told.what
    assert "{" not in told.what + told.why + told.todo


@pytest.mark.parametrize("text", ["{id}", "{}", "{0}", "a{", "%s"])
def test_the_words_of_a_script_are_never_a_template(text):
    told = story(State.ERR, {**FACTS, "cause": "said_err", "job_status": text})
    assert told.why.endswith(text)
