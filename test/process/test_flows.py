"""Flows with real queues: all of the messages run, in their order, or none does."""

from __future__ import annotations

import json
import sys
import time

import pytest
from harness.checkout import CHECKOUT
from harness.flows import DIAMOND, FLOW, GO, NOTE, node, running_stage
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.builtin.flow import deeds, door, look
from rq.errors import BadInput, KeyReused, WrongState
from rq.flow import view
from rq.flow.plan import parse

pytestmark = pytest.mark.process


@pytest.fixture
def stage(tmp_path):
    with running_stage(tmp_path) as stage:
        yield stage


def test_messages_of_a_flow_run_in_their_order(stage):
    msg_id = stage.send({"messages": DIAMOND, "name": "diamond"})
    assert stage.ended(msg_id)["state"] == "done"
    told = stage.until(msg_id, "done")
    assert told["text"] == "all of its 4 messages are done"
    assert told["name"] == "diamond"
    assert sorted(stage.order[1:3]) == ["left begun", "right begun"]
    assert [stage.order[0], stage.order[3]] == ["first begun", "last begun"]
    assert len(stage.order) == 4


def test_nothing_runs_before_all_are_sent(stage):
    """The second queue takes nothing for a while: the first message waits for it."""
    stage.other.ask("status")
    stage.other.stop()
    msg_id = stage.send(DIAMOND)
    wait_until(lambda: "first" in stage.sent(msg_id))
    time.sleep(0.3)
    assert stage.order == []
    assert stage.shown(msg_id)["mark"] == "unsent"
    assert stage.state(msg_id, "first") == "waits"
    stage.other.start()
    stage.until(msg_id, "done")
    assert len(stage.order) == 4


def test_a_flow_that_a_queue_refuses_is_not_begun(stage):
    refused = node("bad", "left", queue="nowhere")
    msg_id = stage.send_unchecked([*DIAMOND, refused])
    ended = stage.ended(msg_id)
    assert ended["state"] == "err"
    assert "nowhere: there is no such queue" in ended["result"]["job_status"]
    wait_until(lambda: stage.waiting() == 0)
    assert stage.order == []
    told = stage.shown(msg_id)
    assert told["mark"] == "failed"
    assert "none of its messages ran: bad: queue nowhere: there" in told["text"]


@pytest.mark.parametrize("rule", ["done", "ended", "failed"])
def test_a_flow_that_is_cancelled_is_discarded_whatever_the_rules_say(stage, rule):
    stage.other.stop()
    messages = [
        node("first", after_rule=rule),
        node("second", "first", after_rule=rule),
        node("far", "second", queue="other"),
    ]
    msg_id = stage.send(messages)
    wait_until(lambda: "second" in stage.sent(msg_id))
    flow = look.flow_of(stage.root, msg_id)
    deeds.cancel(stage.root, flow, "me")
    stage.other.start()
    wait_until(lambda: stage.waiting() == 0)
    assert stage.order == []


def test_a_sender_that_is_ended_from_outside_takes_its_messages_along(stage):
    """Only F is cancelled: the owners of the others hear that it has failed."""
    stage.other.stop()
    msg_id = stage.send([node("first", after_rule="ended"), node("far", queue="other")])
    wait_until(lambda: "first" in stage.sent(msg_id))
    wait_until(lambda: stage.flow.state(msg_id) == "que")
    stage.flow.ok("delete_message", {"msg_id": msg_id})
    stage.other.start()
    time.sleep(0.5)
    assert stage.order == []


def test_a_key_names_one_flow(stage):
    flow = {"messages": DIAMOND, "key": "k"}
    first = door.send(stage.root, parse(flow), {"_key": "k"})
    again = door.send(stage.root, parse(flow), {"_key": "k"})
    assert (first.msg_id, first.stood) == (again.msg_id, False)
    assert again.stood
    with pytest.raises(KeyReused):
        door.send(stage.root, parse({**flow, "messages": DIAMOND[:1]}), {"_key": "k"})
    stage.until(first.msg_id, "done")
    assert len(stage.order) == 4


def test_a_flow_that_was_not_begun_frees_its_key_for_another_plan(stage):
    def under(messages):
        return door.make(
            stage.root, parse({"messages": messages, "key": "k" * 200}), {}
        )

    first = under([node("bad", queue="nowhere")])
    stage.ended(first.msg_id)
    mended, again = under(DIAMOND), under(DIAMOND)
    assert mended.msg_id == again.msg_id != first.msg_id
    assert (mended.stood, again.stood) == (False, True)
    assert under([node("bad", queue="nowhere")]).msg_id == first.msg_id
    stage.until(mended.msg_id, "done")
    with pytest.raises(KeyReused, match=mended.msg_id):
        under(DIAMOND[:1])
    assert len(stage.order) == 4


@pytest.mark.parametrize(
    "point",
    [
        "flow:before-send#1",
        "flow:before-send#3",
        "flow:between-sends#1",
        "flow:between-sends#2",
        "flow:between-sends#4",
    ],
)
def test_a_sender_that_is_killed_doubles_nothing(stage, point):
    stage.kill_sender(point)
    msg_id = stage.send(DIAMOND)
    stage.until(msg_id, "done")
    assert stage.flow.get(msg_id)["attempt"] == 2
    assert len(stage.order) == 4
    assert len(set(stage.sent(msg_id).values())) == 4


def test_a_sender_that_is_killed_while_it_discards_begins_nothing(stage):
    stage.kill_sender("flow:refused")
    msg_id = stage.send_unchecked([*DIAMOND, node("bad", "left", queue="nowhere")])
    assert stage.ended(msg_id)["state"] == "err"
    wait_until(lambda: stage.waiting() == 0)
    assert stage.order == []


@pytest.mark.parametrize("which", ["flow", "work", "other"])
def test_owners_that_are_killed_while_a_flow_runs_forget_nothing(stage, which):
    messages = [node("first", param2=GO), *DIAMOND[1:]]
    msg_id = stage.send(messages)
    wait_until(lambda: stage.order == ["first begun"])
    stage.queues[which].crash()
    stage.queues[which].start()
    stage.go()
    stage.until(msg_id, "done")
    assert {"left begun", "right begun", "last begun"} <= set(stage.order)
    assert len(stage.order) == (5 if which == "work" else 4)  # first was cut off


def test_a_flow_owner_that_is_killed_before_its_decision_decides_once(stage):
    stage.other.stop()
    msg_id = stage.send(DIAMOND)
    wait_until(lambda: "first" in stage.sent(msg_id))
    stage.flow.crash()
    time.sleep(0.2)
    assert stage.order == []
    stage.other.start()
    time.sleep(0.2)
    assert stage.order == []
    stage.flow.start()
    stage.until(msg_id, "done")
    assert len(stage.order) == 4


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before-write", "written"])
@pytest.mark.parametrize("line", [1, 2])  # of its claim, of its finish
def test_the_owner_of_a_flow_that_is_killed_at_its_decision_decides_once(
    stage, where, line
):
    stage.other.stop()
    msg_id = stage.send(DIAMOND)
    wait_until(lambda: "first" in stage.sent(msg_id))
    wait_until(lambda: stage.flow.state(msg_id) == "que")
    stage.other.start()
    stage.flow.crash_at(f"journal:{where}#{line}")
    wait_until(lambda: not stage.flow.alive)
    assert stage.order == []
    stage.flow.start()
    stage.until(msg_id, "done")
    assert len(stage.order) == 4
    assert len(set(stage.sent(msg_id).values())) == 4


def test_retry_of_what_failed_lets_the_rest_go_on(stage):
    broken = '[ -e "$RQ_ROOT/go" ] || exec sh -c "echo err >&3"'
    msg_id = stage.send([node("first", param2=broken), *DIAMOND[1:]])
    told = stage.until(msg_id, "failed")
    assert told["sums"] == {"failed": 1, "waits": 3}
    stage.go()
    done = deeds.retry(stage.root, look.flow_of(stage.root, msg_id), "me")
    assert (done.changed, list(done.failures)) == (1, [])
    stage.until(msg_id, "done")


def test_cancel_of_the_whole_ends_what_runs_and_removes_what_waits(stage):
    messages = [
        node("first"),
        node("runs", "first", param2=GO),
        node("then", "runs", after_rule="ended"),
        node("failing", "runs", after_rule="failed", queue="other"),
    ]
    msg_id = stage.send(messages)
    wait_until(lambda: "runs begun" in stage.order)
    done = deeds.cancel(stage.root, look.flow_of(stage.root, msg_id), "me")
    assert (done.changed, list(done.failures)) == (3, [])
    wait_until(lambda: stage.waiting() == 0)
    told = stage.shown(msg_id)
    assert (told["mark"], told["text"]) == ("cancelled", "1 done, 3 cancelled")
    assert told["sums"] == {"cancelled": 3, "done": 1}
    end = look.end_of(stage.root, msg_id)
    assert (end["state"], end["cause"], end["acknowledged"]) == (
        *("err", "cancelled"),
        True,
    )
    assert stage.order == ["first begun", "runs begun"]


def test_a_retry_leaves_what_a_person_has_cancelled(stage):
    messages = [
        node("fails", param3="err"),
        node("runs", param2=GO),
        node("then", "runs", "fails"),
    ]
    msg_id = stage.send(messages)
    stage.until(msg_id, "runs")
    wait_until(lambda: stage.state(msg_id, "fails") == "failed")
    place = stage.sent(msg_id)["runs"].partition("/")[2]
    wait_until(lambda: "runs begun" in stage.order)
    stage.work.ok("cancel_message", {"msg_id": place, "who": "ann"})
    wait_until(lambda: stage.state(msg_id, "runs") == "cancelled")
    assert stage.shown(msg_id)["sums"] == {"failed": 1, "cancelled": 1, "waits": 1}
    done = deeds.retry(stage.root, look.flow_of(stage.root, msg_id), "me")
    assert (done.changed, done.left) == (1, 1)
    assert stage.state(msg_id, "runs") == "cancelled"
    wait_until(lambda: stage.order.count("fails begun") == 2)
    stage.until(msg_id, "failed")
    flow = look.flow_of(stage.root, msg_id)
    with pytest.raises(WrongState, match="1 cancelled, 1 waiting"):
        deeds.part(flow, "runs")
    stage.go()
    done = deeds.retry(stage.root, flow, "me", cancelled=True)
    assert (done.changed, done.left) == (2, 0)
    wait_until(lambda: stage.state(msg_id, "runs") == "done")


def test_a_flow_of_which_only_what_waited_was_cancelled_is_cancelled(stage):
    held = node("held", "first", hold=True)
    msg_id = stage.send([node("first"), held, node("then", "held")])
    stands = {"held": 1, "waits": 1, "done": 1}
    wait_until(lambda: stage.shown(msg_id)["sums"] == stands)
    deeds.cancel(stage.root, look.flow_of(stage.root, msg_id), "me")
    told = stage.until(msg_id, "cancelled")
    assert told["sums"] == {"cancelled": 2, "done": 1}
    done = deeds.retry(
        stage.root, look.flow_of(stage.root, msg_id), "me", cancelled=True
    )
    assert (done.changed, done.left) == (0, 2)  # they are removed: a rerun sends them


def test_a_flow_that_is_cancelled_while_it_is_sent_is_cancelled(stage):
    stage.other.stop()
    msg_id = stage.send([node("first"), node("far", "first", queue="other")])
    request = {"msg_id": msg_id, "who": "ann"}
    wait_until(lambda: stage.flow.ask("cancel_message", request)[0] == "ok")
    told = stage.until(msg_id, "cancelled")
    assert "none of its messages ran: cancelled by ann" in told["text"]
    stage.other.start()


def discarded(queue):
    """Return the ids of the messages that were removed, as the journal tells it."""
    queue.ok("seal")
    lines = [
        json.loads(line)
        for path in sorted(queue.dir.path.glob("history/*/*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [line["msg"] for line in lines if line.get("ev") == "discard"]


def test_the_last_in_order_is_ended_first(stage):
    """So that what waited for one that is ended is gone, whatever its rule."""
    messages = [
        node("first", hold=True),
        node("second", "first", after_rule="ended"),
        node("third", "second", after_rule="ended"),
    ]
    msg_id = stage.send(messages)
    stage.ended(msg_id)
    deeds.cancel(stage.root, look.flow_of(stage.root, msg_id), "me")
    sent = stage.sent(msg_id)
    names = ("third", "second", "first")
    assert discarded(stage.work) == [sent[name].partition("/")[2] for name in names]
    assert stage.order == []


def test_what_was_refused_stays_so_when_its_cause_has_gone(tmp_path):
    """The sender dies once it is decided that the flow is not begun; then the queue that
    was missing is there."""
    slow = {**FLOW, "retry": {"on": ["signal"], "wait": 5}}
    with running_stage(tmp_path, **slow) as stage:
        stage.kill_sender("flow:refused")
        msg_id = stage.send_unchecked([*DIAMOND, node("bad", "left", queue="late")])
        wait_until(lambda: stage.flow.get(msg_id)["attempt"] == 1)
        wait_until(lambda: stage.flow.state(msg_id) == "que")
        with running_queue(tmp_path, NOTE, name="late") as late:
            ended = stage.ended(msg_id)
            assert ended["state"] == "err"
            assert "there is no such queue" in ended["result"]["job_status"]
            wait_until(lambda: stage.waiting() == 0)
            assert late.ask("num_messages")["que"] == 0
        assert stage.order == []


def test_a_part_is_sent_again_after_what_stands(stage):
    msg_id = stage.send(DIAMOND)
    stage.until(msg_id, "done")
    part = deeds.part(look.flow_of(stage.root, msg_id), "left")
    again = door.send(stage.root, part, {}).msg_id
    told = stage.until(again, "done")
    assert [each["name"] for each in told["nodes"]] == ["left", "last"]
    sent = stage.sent(msg_id)
    assert told["nodes"][0]["after"] == [sent["first"]]
    assert sorted(stage.order[4:]) == ["last begun", "left begun"]
    whole = deeds.part(look.flow_of(stage.root, msg_id), "")
    assert len(whole.nodes) == 4
    with pytest.raises(BadInput, match="no message called 'x'"):
        deeds.part(look.flow_of(stage.root, msg_id), "x")


def test_a_flow_that_was_not_begun_is_neither_retried_nor_moved(stage):
    msg_id = stage.send_unchecked([node("bad", queue="nowhere")])
    assert stage.ended(msg_id)["state"] == "err"
    for command, more in (("retry_message", {}), ("move_message", {"to": "work"})):
        said = stage.flow.refused(command, {"msg_id": msg_id, **more})
        assert "rq flow rerun" in said
    with pytest.raises(WrongState, match="was not begun"):
        deeds.retry(stage.root, look.flow_of(stage.root, msg_id), "me")


def test_only_messages_of_a_flow_wait_for_what_sends_it(stage):
    msg_id = stage.send(DIAMOND)
    wanted = {"dest": "work", "after": [f"flow/{msg_id}"]}
    assert "sends a flow" in stage.work.refused("create_message", wanted)
    for key in ("flow/x/y", "flow/"):
        whose = {"_key": key, "_key_of": "somebody"}
        assert "sends a flow" in stage.work.refused(
            "create_message", {**wanted, **whose}
        )
    stage.until(msg_id, "done")


def test_a_message_without_a_plan_says_what_makes_one(stage):
    msg_id = stage.flow.send()
    ended = stage.flow.ended(msg_id)
    assert "it has no plan" in ended["result"]["job_status"]
    assert "rq flow run FILE" in ended["result"]["job_status"]


def test_a_script_lets_others_wait_for_its_own_message(stage):
    """By `rq send --after self`, and in a flow that it sends."""
    rq = f"PYTHONPATH={CHECKOUT} {sys.executable} -m rq.cli"
    plan = json.dumps([node("in-flow", "self", queue="other")])
    script = f"""{rq} send other --after self -p1 after; echo '{plan}' | {rq} flow run -
    sleep 1; echo "over" >> "$RQ_ROOT/order" """
    stage.work.run(param1="first", param2=script)
    wait_until(lambda: len(stage.order) == 4)
    assert stage.order[:2] == ["first begun", "over"]
    assert sorted(stage.order[2:]) == ["after begun", "in-flow begun"]
    assert "self is the message" in stage.work.refused(
        "create_message", {"dest": "work", "after": ["self"]}
    )
    with pytest.raises(BadInput, match="self is the message"):
        parse([node("a", "self")])


def test_the_only_message_before_one_tells_it_its_result(stage):
    """What sends the flow is waited for as well, and is no second one."""
    tell = 'printf "%s|" "${RQ_PARENT_RESULT-none}" >> "$RQ_ROOT/results"'
    messages = [
        node("first", param2=f"{tell}; echo 'result 42' >&3"),
        node("next", "first", param2=tell),
        node("last", "first", "next", param2=tell),
    ]
    stage.until(stage.send(messages), "done")
    assert (stage.root.path / "results").read_text() == "none|42|none|"


def test_what_was_not_needed_is_told_so(stage):
    messages = [node("first"), node("mend", "first", after_rule="failed")]
    msg_id = stage.send(messages)
    told = stage.until(msg_id, "not_run")
    assert told["sums"] == {"not_run": 1, "done": 1}
    assert stage.order == ["first begun"]


def test_what_runs_says_how_far_it_is(stage):
    says = f'echo "run 3 of 7 pages" >&3; {GO}'
    msg_id = stage.send([node("first", param2=says), node("last", "first")])
    wait_until(lambda: stage.shown(msg_id)["nodes"][0].get("text") == "3 of 7 pages")
    first, last = stage.shown(msg_id)["nodes"]
    assert (first["mark"], last["mark"]) == ("runs", "waits")
    assert "text" not in last
    stage.go()
    stage.until(msg_id, "done")


LATER = time.time() + 3600


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_message_that_was_moved_stands_as_where_it_goes_on(stage, is_silent):
    msg_id = stage.send([node("moved", due=LATER), node("last", "moved")])
    stage.ended(msg_id)
    was = stage.sent(msg_id)["moved"]
    there = {"msg_id": was.partition("/")[2], "to": "other", "who": "ann"}
    stage.work.ok("move_message", there)
    wait_until(lambda: stage.state(msg_id, "moved") == "ready")
    wait_until(lambda: "was" in stage.shown(msg_id)["nodes"][0])
    if is_silent:
        stage.work.stop()
    first, last = stage.shown(msg_id)["nodes"]
    assert (first["mark"], first["queue"], first["was"]) == ("ready", "other", was)
    assert last["mark"] == "waits"
    hidden = view.view(look.flow_of(stage.root, msg_id), lambda queue: queue == "work")
    assert [each["name"] for each in hidden["nodes"]] == ["#1", "last"]
    done = deeds.cancel(stage.root, look.flow_of(stage.root, msg_id), "me")
    assert stage.shown(msg_id)["nodes"][0]["mark"] == "cancelled"
    assert done.changed == (1 if is_silent else 2)


def test_a_message_that_was_edited_stands_as_the_one_in_its_place(stage):
    msg_id = stage.send([node("bad", param3="err"), node("last", "bad")])
    stage.until(msg_id, "failed")
    was = stage.sent(msg_id)["bad"]
    changes = {"param2": GO, "param3": None}
    wanted = {"msg_id": was.partition("/")[2], "changes": changes}
    edited = stage.work.ok("edit_message", wanted).rpartition("/")[2]
    wait_until(lambda: stage.state(msg_id, "bad") == "runs")
    first = stage.shown(msg_id)["nodes"][0]
    assert (first["msg_id"], first["was"]) == (edited, was)
    stage.go()
    stage.until(msg_id, "done")
    assert stage.order[-1] == "last begun"
