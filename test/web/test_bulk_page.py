"""Many messages in the browser: a filter, a count, a button, and how far it is."""

import re
import time
from urllib.parse import urlencode

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, '#!/bin/sh\necho "err $RQ_PARAM1" >&3\n') as queue:
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def page(web, path):
    assert HOSTILE not in web.get(path, Accept=BROWSER).text
    return web.page(path)


def failed(queue, number, text):
    queue.ok("bulk", {"action": "delete", "filter": {"state": "err"}})
    wait_until(lambda: queue.ask("num_messages")["err"] == 0)
    for _ in range(number):
        queue.ask("create_message", {"dest": "t", "param1": text})
    wait_until(lambda: queue.ask("num_messages")["err"] == number)


def test_all_that_match_are_counted_then_changed(queue, web):
    failed(queue, 12, HOSTILE)
    assert "/q/t/bulk?state=err" in page(web, "/q/t?state=err")
    shown = page(web, "/q/t/bulk?state=err&text=script&action=ack")
    assert "12 messages match" in shown
    assert "and 2 more" in shown
    assert "Acknowledge: all 12 that match" in shown
    assert queue.ask("num_messages")["err"] == 12
    fields = {"state": "err", "text": "script", "action": "ack", "back": "/q/t/bulk"}
    done = web.post("/q/t/bulk", fields)
    assert (done.status, done.headers["location"]) == (303, "/q/t/bulk")
    wait_until(lambda: queue.ask("num_messages")["err"] == 0)
    assert "Acknowledge" in page(web, "/q/t/bulk")
    [row] = [one for one in twin(web)["bulks"] if one["action"] == "ack"]
    assert (row["state"], row["changed"]) == ("done", 12)
    assert row["filter"] == {"state": "err", "text": "script"}


def test_causes_and_groups_that_there_are_are_offered_with_their_counts(queue, web):
    failed(queue, 3, "no host at 10.0.0.1")
    for number in (4, 5):
        queue.ask("create_message", {"dest": "t", "param1": f"bad line {number}"})
    wait_until(lambda: queue.ask("num_messages")["err"] == 5)
    shown = page(web, "/q/t/bulk?state=err&find=line")
    assert "3 × said_err: no host at #" in shown
    assert "2 × said_err: bad line #" in shown
    assert "said_err (5)" in shown
    assert 'value="line"' in shown  # the filter that one came with is kept …
    assert "/q/t/bulk?state=done&find=line" in shown  # … also for another state
    [lines] = [row for row in twin(web, "?state=err")["offer"]["groups"]
               if row["wording"] == "bad line #"]  # fmt: skip
    fields = {"state": "err", "group": lines["group"], "action": "ack"}
    assert "2 messages match" in page(web, "/q/t/bulk?" + urlencode(fields))
    web.post("/q/t/bulk", fields)
    wait_until(lambda: queue.ask("num_messages")["err"] == 3)
    rest = queue.ok("list", {"state": "err", "limit": 9})
    assert {row["param1"] for row in rest} == {"no host at 10.0.0.1"}


def test_what_one_user_has_sent_is_meant_alone(queue, web):
    failed(queue, 2, "by whom")
    [row] = queue.ok("list", {"state": "err", "limit": 1})
    sender = queue.ok("get_message", {"msg_id": row["msg_id"]})["by"]
    address = "/q/t/bulk?state=err&action=ack&by="
    assert "2 messages match" in page(web, address + sender)
    assert f'name="by" value="{sender}"' in page(web, address + sender)
    assert "0 messages match" in page(web, address + "another")


def test_no_field_is_shown_that_does_nothing_for_the_state(web):
    shown = page(web, "/q/t/bulk?state=prep&group=x&cause=exit&text=y")
    for name in ("group", "cause", "text"):
        assert f'name="{name}"' not in shown
    form = twin(web, "?state=prep&group=x&cause=exit&text=y")["form"]
    assert (form["group"], form["cause"], form["text"]) == ("", "", "")


def test_an_action_has_what_it_needs_beside_it(queue, web):
    failed(queue, 1, "x")
    shown = page(web, "/q/t/bulk?state=err")
    assert 'name="to_move"' in shown
    assert 'name="to_due"' not in shown
    counted = twin(web, "?state=err&action=move&to_move=elsewhere&to_due=soon")
    assert counted["form"]["to"] == "elsewhere"


def test_what_failed_after_it_was_counted_is_not_meant_by_the_button(queue, web):
    failed(queue, 1, "x")
    shown = page(web, "/q/t/bulk?state=err&action=ack")
    [counted] = re.findall(r'name="before" value="([\d.]+)"', shown)
    queue.ask("create_message", {"dest": "t", "param1": "y"})
    wait_until(lambda: queue.ask("num_messages")["err"] == 2)
    fields = {"state": "err", "action": "ack", "x_format": "json"}
    refused = web.post("/q/t/bulk", {**fields, "before": "soon"})
    assert "before is 'soon'" in refused.text
    web.post("/q/t/bulk", {**fields, "before": counted})
    wait_until(lambda: queue.ask("num_messages")["err"] == 1)
    [row] = queue.ok("list", {"state": "err", "limit": 2})
    assert row["param1"] == "y"


def twin(web, query=""):
    return web.get(f"/q/t/bulk.json{query}").json


def test_what_is_wrong_is_said_in_place(queue, web):
    failed(queue, 1, "x")
    path = "/q/t/bulk?state=err&action=ack&older=soon"
    assert "not a duration" in page(web, path)
    assert "move" in page(web, "/q/t/bulk?state=err&action=move")
    fields = {"state": "que", "action": "priority", "to": "9" * 5000}
    refused = web.post("/q/t/bulk", {**fields, "x_format": "json"})
    assert "priority is a number from 0 to 9" in refused.text, refused
    back = "/q/t/bulk"
    done = web.post("/q/t/bulk", {"state": "err", "action": "move", "back": back})
    assert done.status == 303
    assert queue.ask("num_messages")["err"] == 1


def test_what_waits_gets_another_due_as_a_person_says_it(queue, web):
    url = queue.ask("create_message", {"dest": "t", "due": 4e9})[1]
    fields = {"state": "que", "action": "due", "to": "+1h", "x_format": "json"}
    assert web.post("/q/t/bulk", fields).json[0] == "ok"
    msg_id = url.rpartition("/")[2]

    def due():
        return queue.ok("get_message", {"msg_id": msg_id})["due"]

    wait_until(lambda: due() < 4e9)
    assert abs(due() - time.time() - 3600) < 60
    assert "Set due: 20" in page(web, "/q/t/bulk?state=que")
    queue.ok("delete_message", {"msg_id": msg_id})


def test_one_at_work_can_be_ended(queue, web):
    done = web.post("/q/t/bulk/x", {"_method": "cancel", "x_format": "json"})
    assert done.json[0] == "fail"
    assert web.post("/q/t/bulk/x", {"_method": "hug"}).status == 400


def test_no_state_and_no_action_are_made_up(web):
    asked = twin(web, "?state=nope&action=destroy")["form"]
    assert (asked["state"], asked["action"]) == ("err", "")
    assert twin(web, "?state=done&action=retry")["choice"] is None


def test_one_message_is_called_back_and_moved_from_its_page(queue, web):
    failed(queue, 1, "x")
    [row] = queue.ok("list", {"state": "err", "limit": 1})
    path = f"/q/t/{row['msg_id']}"
    assert f"{path}/confirm/move" in page(web, path)
    web.post(path, {"_method": "ack", "x_format": "json"})
    assert f"{path}/confirm/unack" in page(web, path)
    question = web.get(f"{path}/confirm/unack", Accept="application/json").json
    assert web.post(question["post"], question["fields"]).status == 303
    assert queue.ask("num_messages")["err"] == 1
    assert 'name="to"' in page(web, f"{path}/confirm/move")
    refused = web.post(path, {"_method": "move", "to": "nowhere", "x_format": "json"})
    assert refused.json[0] == "fail"
    refused = web.post(path, {"_method": "move", "x_format": "json"})
    assert "move needs 'to'" in refused.json[1]
