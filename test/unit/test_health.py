"""What is well and what is not: as an operator would say it."""

import pytest

from rq.replies import health

WELL = {
    "admin": "UP",
    "oper": "UP",
    "reason": None,
    "closed_reason": None,
    "stalled": None,
    "stalled_by": None,
    "stuck": None,
    "in_doubt": 0,
    "left_at_door": {},
    "lag": 0,
}


def of(**facts):
    return list(health.of_queue("q", {**WELL, **facts}))


def test_a_queue_that_runs_is_well():
    assert of() == []
    assert of(lag=1000) == []
    assert list(health.of_errors("q", {"err": 0, "errack": 5})) == []


@pytest.mark.parametrize(
    ("facts", "sentence", "stops"),
    [
        ({"closed_reason": "full"}, "q accepts no messages: full", True),
        ({"oper": "SCRIPTERROR", "reason": "run: no such file"},
         "q cannot start its script: run: no such file", True),
        ({"reason": "bad config"}, "q has a problem: bad config", False),
        ({"stalled": "so it is", "stalled_by": "start"},
         "q makes no progress: so it is", True),
        ({"stalled": "so it is", "stalled_by": "slots"},
         "q makes no progress: so it is", True),
        ({"stalled": "they wait for h", "stalled_by": "outside"},
         "q makes no progress: they wait for h", False),
        ({"stuck": "EIO"}, "q cannot make folders: EIO", False),
        ({"in_doubt": 1},
         "q could not deliver a copy or webhook in six days: `rq owed ls` lists them", False),
        ({"left_at_door": {"x": "no msg"}}, "q cannot take new/x: no msg", False),
        ({"held": [{"msg_id": "1", "by": "pid 7"}]}, "q cannot end the attempt of 1: pid 7", False),
    ],
)  # fmt: skip
def test_trouble_is_a_sentence(facts, sentence, stops):
    (found,) = of(**facts)
    assert (found.sentence, found.stops, found.passing) == (sentence, stops, False)


def test_what_passes_by_itself_is_told_and_is_no_alarm():
    (found,) = of(lag=2000)
    assert found.passing
    assert (
        found.sentence
        == "q is behind with 2,000 folders, which are still to be made or moved"
    )


def test_what_somebody_took_down_is_well():
    assert of(admin="DOWN", closed_reason="full", oper="SCRIPTERROR") == []
    assert list(health.of_silent("q", "DOWN", {"state": "DOWN"}, "?")) == []


@pytest.mark.parametrize("admin", ["UP", "PAUSE"])
@pytest.mark.parametrize(
    ("child", "sentence", "passing"),
    [
        ({}, "q does not answer: why", False),
        ({"state": "UP", "reason": ""}, "q does not answer: why", False),
        ({"state": "FATAL", "reason": "bad"}, "q is FATAL: bad", False),
        ({"state": "BACKOFF", "reason": "exit 1"}, "q is BACKOFF: exit 1", False),
        ({"state": "STARTING", "reason": ""}, "q is STARTING", True),
        ({"state": "STARTING", "reason": "starting for 61 s"},
         "q is STARTING: starting for 61 s", False),
    ],
)  # fmt: skip
def test_a_queue_that_should_answer_and_does_not(admin, child, sentence, passing):
    (found,) = health.of_silent("q", admin, child, "why")
    assert (found.sentence, found.passing) == (sentence, passing)
    assert found.stops


def test_helpers_and_their_files_are_told():
    child = {"kind": "timers", "name": "timers", "wanted": "UP"}
    facts = {
        "children": [
            {**child, "state": "FATAL", "reason": "exit 1"},
            {"kind": "web", "name": "web", "state": "DOWN", "wanted": "DOWN"},
            {
                "kind": "queue",
                "name": "q",
                "state": "FATAL",
                "reason": "told elsewhere",
            },
        ],
        "timers": {"errors": {"daily.json": "no period"}},
        "scandir": None,
    }
    told = [one.sentence for one in health.of_helpers(facts)]
    assert told == ["timers is FATAL: exit 1", "timers/daily.json: no period"]


def test_errors_are_told_with_their_number():
    (one,) = health.of_errors("q", {"err": 1})
    (many,) = health.of_errors("q", {"err": 1074})
    assert one.sentence.startswith("q has a message that failed: `rq ls q --state err`")
    assert many.sentence.startswith("q has 1,074 messages that failed: ")
    assert not many.stops
    assert not many.passing
