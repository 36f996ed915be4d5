"""A timer that sends a flow: its key, its overlap and its end count for the whole."""

import json
import time

import pytest
from harness.flows import GO, node, running_stage
from harness.timers import past, timers
from harness.waiting import wait_until

from rq.builtin.flow import look
from rq.errors import BadConfig
from rq.timers.timer import parse

pytestmark = pytest.mark.process


@pytest.fixture
def stage(tmp_path):
    with running_stage(tmp_path) as stage:
        stage.root.timers.mkdir()
        yield stage


def write(stage, messages, **settings):
    said = {
        "period": 86400,
        "flow": {"messages": messages, "name": "nightly"},
        **settings,
    }
    (stage.root.timers / "daily.json").write_text(json.dumps(said))


def due_again(stage):
    saved = {**past(stage), "last": time.time() - 90000}
    stage.root.timers_state.write_text(json.dumps({"timers": {"daily": saved}}))


def fired(stage, number):
    """Wait until so many flows were sent; return the id of the newest."""
    wait_until(lambda: len(look.newest(stage.root, 10)) == number)
    return look.newest(stage.root, 10)[0].msg_id


def test_a_timer_sends_a_flow_as_its_own(stage):
    write(stage, [node("first"), node("then", "first", queue="other")])
    with timers(stage):
        msg_id = fired(stage, 1)
        stage.until(msg_id, "done")
    assert stage.order == ["first begun", "then begun"]
    assert stage.flow.get(msg_id)["by"] == "timer:daily"
    [queue, short] = stage.sent(msg_id)["then"].split("/")
    assert stage.queues[queue].get(short)["by"] == "timer:daily"


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
def test_overlap_counts_for_the_flow_as_a_whole(stage, overlap):
    write(stage, [node("first"), node("runs", "first", param2=GO)], overlap=overlap)
    with timers(stage):
        first = fired(stage, 1)
        wait_until(lambda: "runs begun" in stage.order)
        wait_until(lambda: past(stage).get("result", "").startswith("sent"))
    assert stage.flow.state(first) == "done"
    due_again(stage)
    with timers(stage):
        if overlap == "skip":
            said = f"skipped: {first} has not ended"
            wait_until(lambda: past(stage).get("result") == said)
            assert len(look.newest(stage.root, 10)) == 1
        else:
            fired(stage, 2)
            marks = stage.shown(first)["sums"]
            assert marks == {"failed" if overlap == "replace" else "runs": 1, "done": 1}
    stage.go()


def test_a_timer_says_how_the_flow_has_ended(stage):
    write(stage, [node("first"), node("bad", "first", param3="err")])
    with timers(stage):
        fired(stage, 1)
        wait_until(lambda: "1 done, 1 failed" in json.dumps(rows(stage)))


def rows(stage):
    return stage.root.timers_fires.read_text()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"flow": []}, "this flow has no messages"),
        ({"flow": [node("a", "b")]}, "a waits for 'b'"),
        ({"flow": [node("a")], "msg": {"dest": "q"}}, "'msg' or 'flow', not both"),
        ({"flow": {"messages": [node("a")], "key": "k"}}, "a key of its own"),
        ({"flow": [node("a", queue="webhook")]}, "not from timers"),
    ],
)
def test_a_flow_of_a_timer_that_is_wrong_is_refused_when_it_is_read(
    tmp_path, said, sentence
):
    path = tmp_path / "daily.json"
    path.write_text(json.dumps({"period": 3600, **said}))
    with pytest.raises(BadConfig, match=sentence):
        parse(path)
