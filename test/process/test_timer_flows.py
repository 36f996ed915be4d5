"""A timer that sends a flow: its key, its overlap and its end count for the whole."""

import json
import time

import pytest
from harness.cli import rq
from harness.flows import GO, node, running_stage
from harness.timers import past, timers
from harness.waiting import wait_until

from rq.builtin.flow import deeds, look
from rq.errors import BadConfig
from rq.rpc import client
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
            mark = "cancelled" if overlap == "replace" else "runs"
            assert marks == {mark: 1, "done": 1}
    stage.go()


def test_a_timer_says_how_the_flow_has_ended(stage):
    write(stage, [node("first"), node("bad", "first", param3="err")])
    with timers(stage):
        fired(stage, 1)
        wait_until(lambda: "1 done, 1 failed" in json.dumps(rows(stage)))


def test_a_flow_that_waits_for_a_retry_has_failed_and_is_in_the_way(stage):
    once = 'mkdir "$RQ_ROOT/once" 2>&- && exec sh -c "echo err >&3"'
    messages = [node("bad", param2=once), node("then", "bad")]
    write(stage, messages, overlap="skip")
    with timers(stage):
        first = fired(stage, 1)
        wait_until(lambda: told(stage)["outcome"] == "err")
        assert told(stage)["trouble"]["failed"].endswith(first)
        assert told(stage)["trouble"]["failed_why"] == "1 failed, 1 waiting"
        wait_until(lambda: past(stage).get("result", "").startswith("sent"))
    due_again(stage)
    with timers(stage):
        said = (
            f"skipped: flow {first} has failed and waits for a person: "
            f"`rq flow show {first}`"
        )
        wait_until(lambda: past(stage).get("result") == said)
        assert told(stage)["trouble"]["failed"].endswith(first)
        deeds.retry(stage.root, look.flow_of(stage.root, first), "me")
        stage.until(first, "done")
        assert (told(stage)["outcome"], told(stage)["trouble"]) == ("done", None)
    due_again(stage)
    with timers(stage):
        fired(stage, 2)


def test_a_flow_is_never_said_to_be_done_because_its_sender_was_done_just_now(stage):
    """The sender ends between two looks, of which none may mix both moments."""
    for number in range(8):
        msg_id = stage.send([node(f"n{number}", param2=GO)])
        seen = []
        while not seen or stage.flow.state(msg_id) != "done":
            seen.append(look.end_of(stage.root, msg_id)["state"])
        assert "done" not in seen, seen
    stage.go()


def test_a_flow_that_ends_by_its_rule_when_it_fails_is_in_no_ones_way(stage):
    rest = [node(name, before, after_fail="cancel") for before, name in ("ab", "bc")]
    write(stage, [node("a", param3="err"), *rest], overlap="skip")
    with timers(stage):
        stage.until(fired(stage, 1), "failed")
        wait_until(lambda: not look.goes_on(look.newest(stage.root, 1)[0]))
        wait_until(lambda: past(stage).get("result", "").startswith("sent"))
    due_again(stage)
    with timers(stage):
        fired(stage, 2)


def told(stage):
    """Return what the timers say of the timer now."""
    [word, view] = client.ask_timers(stage.root.timers_socket, "timer", "daily")
    assert word == "ok", view
    return view


def test_a_timer_whose_flow_lacks_a_queue_sends_nothing_and_says_so(stage):
    write(stage, [node("a"), node("b", queue="wrk")])
    with timers(stage):
        said = "b: there is no queue 'wrk'; did you mean 'work'?"
        wait_until(lambda: past(stage).get("error") == said)
    assert look.newest(stage.root, 10) == []


def test_a_queue_that_a_flow_lacks_is_told_before_the_fire(stage):
    flow = [node("a"), node("b", queue="wrk"), node("c", "b", queue="wrk")]
    path = stage.root.timers / "yearly.json"
    path.write_text(json.dumps({"cron": "0 3 1 1 *", "flow": flow}))
    with timers(stage):
        why = "b: there is no queue 'wrk'; did you mean 'work'?"
        wait_until(lambda: said_wrong(stage) == {"yearly": why})
        (stage.root.queues / "wrk").mkdir()
        (stage.root.queues / "wrk" / "config.json").write_text("{}")
        wait_until(lambda: said_wrong(stage) == {})


def said_wrong(stage):
    """Return what `rq status` and monitors are told of timers."""
    path = stage.root.timers_state
    return json.loads(path.read_text())["errors"] if path.exists() else None


def test_a_run_by_hand_prints_where_its_flow_is_shown(stage):
    write(stage, [node("a")])
    with timers(stage):
        fired(stage, 1)
        done = rq("timer", "run", "daily", root=stage.root.path)
        msg_id = fired(stage, 2)
    assert done.stdout.startswith("timer daily: sent http://")
    assert done.stdout.endswith(f"/flows/{msg_id}\n")


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
