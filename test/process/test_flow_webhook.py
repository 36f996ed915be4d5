"""A webhook of a flow as a whole: called once, signed, when all of it has ended."""

from __future__ import annotations

import json
import time

import pytest
from harness.checkout import CHECKOUT
from harness.flows import DIAMOND, GO, node, running_stage
from harness.queues import running_queue
from harness.receiver import receiver
from harness.waiting import wait_until

from rq.builtin.flow import deeds, look
from rq.share.rq_client import verify_webhook

pytestmark = pytest.mark.process
WEBHOOK = CHECKOUT / "rq/bundled/webhook/run"


@pytest.fixture
def hooked(tmp_path):
    """A stage whose webhooks are posted to a receiver that is allowed."""
    settings = json.loads((WEBHOOK.parent / "config.json").read_text())
    with (
        running_stage(tmp_path) as stage,
        running_queue(tmp_path, WEBHOOK, "webhook", nice=0, **settings),
        receiver() as web,
    ):
        allowed = {"allow": ["127.0.0.1"]}
        (stage.root.config_dir / "webhooks.json").write_text(json.dumps(allowed))
        yield stage, web


def heard(stage, web, number=1):
    """Wait for so many calls; return what they tell, once their signatures are right."""
    wait_until(lambda: len(web.heard) == number)
    secret = (stage.root.config_dir / "webhook.secret").read_text()
    told = []
    for call in web.heard:
        verify_webhook(secret, call.headers, call.body)
        told.append(json.loads(call.body))
    return told


@pytest.mark.parametrize("rest", ["done", "err"])
def test_a_webhook_of_a_flow_tells_that_all_of_it_has_ended(hooked, rest):
    stage, web = hooked
    messages = [
        node("first", param2=GO),
        node("last", "first", after_fail="cancel", param3=rest),
        node("beside", queue="other"),
    ]
    plan = {"messages": messages, "name": "order", "post_run_webhook": [web.url()]}
    msg_id = stage.send(plan)
    assert stage.ended(msg_id)["state"] == "done", stage.shown(msg_id)
    wait_until(lambda: stage.state(msg_id, "beside") == "done")
    assert web.heard == []
    stage.go()
    [told] = heard(stage, web)
    assert told["type"] == "message.done", told["data"]["status"]
    assert told["data"]["param1"] == "order"
    result = json.loads(told["data"]["outcome"]["result"])
    mark = "done" if rest == "done" else "failed"
    assert (result["flow"], result["name"], result["mark"]) == (msg_id, "order", mark)
    assert result["sums"] == stage.shown(msg_id)["sums"]
    assert [each.msg_id for each in look.newest(stage.root, 1)] == [msg_id]
    time.sleep(0.3)
    assert len(web.heard) == 1


def test_a_webhook_of_a_flow_that_waits_for_a_retry_comes_when_it_is_cancelled(hooked):
    stage, web = hooked
    messages = [node("bad", param3="err"), node("last", "bad")]
    msg_id = stage.send({"messages": messages, "post_run_webhook": [web.url()]})
    told = stage.until(msg_id, "failed")
    end = told["end"]
    says = "waits for the end of all of them, and tells the flow's webhooks then"
    assert (end["state"], end["text"]) == ("que", f"flow/{end['msg_id']} {says}")
    [waits] = stage.flow.ok("list", {"state": "que", "limit": 9})
    assert waits["msg_id"] == end["msg_id"]
    assert waits["param3"] == f"tells its webhooks when flow {msg_id} has ended"
    time.sleep(0.3)
    assert web.heard == []
    deeds.cancel(stage.root, look.flow_of(stage.root, msg_id), "me")
    [told] = heard(stage, web)
    assert "has told" in stage.shown(msg_id)["end"]["text"]
    assert json.loads(told["data"]["outcome"]["result"])["sums"] == {
        "failed": 1,
        "cancelled": 1,
    }


def test_a_webhook_of_a_flow_that_is_not_begun_tells_why(hooked):
    stage, web = hooked
    messages = [*DIAMOND, node("bad", "left", queue="nowhere")]
    plan = {"messages": messages, "post_run_webhook": [web.url()]}
    msg_id = stage.send_unchecked(plan)
    [told] = heard(stage, web)
    assert (told["type"], told["data"]["id"]) == ("message.err", msg_id)
    assert "bad: queue nowhere" in told["data"]["status"]
    wait_until(lambda: stage.waiting() == 0)
    time.sleep(0.3)
    assert len(web.heard) == 1
    assert stage.order == []


@pytest.mark.slow
@pytest.mark.parametrize("which", ["flow", "work"])
def test_the_end_of_a_flow_is_told_once_though_owners_are_killed(hooked, which):
    stage, web = hooked
    messages = [node("first", param2=GO), node("last", "first", queue="other")]
    msg_id = stage.send({"messages": messages, "post_run_webhook": [web.url()]})
    assert stage.ended(msg_id)["state"] == "done", stage.shown(msg_id)
    wait_until(lambda: stage.order == ["first begun"])
    stage.queues[which].crash()
    stage.go()
    stage.queues[which].start()
    [told] = heard(stage, web)
    assert json.loads(told["data"]["outcome"]["result"])["mark"] == "done"
