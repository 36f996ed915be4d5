"""A message that has ended is sent again from its page, with other fields."""

import html
import json
import re

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process

SCRIPT = """#!/bin/sh
case $RQ_PARAM1 in bad*) echo "err $RQ_PARAM1" >&3 ;; *) echo done >&3 ;; esac
"""
HIDDEN = r'<input type="hidden" name="(x_format|if_version|number)" value="([^"]+)">'
VALUE = r'name="mesg\[{}\]"[^>]*(?: value="([^"]*)"|>([^<]*)</textarea>)'


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, SCRIPT, unique={"params": [1]}) as queue:
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def ended(web, queue, **fields):
    """Return the id of a message that has ended."""
    url = queue.ok("create_message", {"dest": "t", **fields})
    msg_id = url.rpartition("/")[2]
    wait_until(lambda: web.state("t", msg_id) in ("done", "err"))
    return msg_id


def shown(web, msg_id):
    """Return what the form of a message holds, as a browser would send it."""
    page = web.get(f"/q/t/{msg_id}/edit", Accept=BROWSER)
    assert (page.status, page.kind) == (200, "text/html"), page
    fields = dict(re.findall(HIDDEN, page.text))
    assert fields["if_version"]
    for name in re.findall(r'name="mesg\[(\w+)\]"', page.text):
        line, lines = re.search(VALUE.format(name), page.text).groups()
        text = html.unescape(lines if line is None else line)
        fields[f"mesg[{name}]"] = text.replace("\n", "\r\n")
    assert f'action="/q/t/{msg_id}/edit"' in page.text
    return fields


def view(web, msg_id):
    return web.get(f"/q/t/{msg_id}.json").json


def test_a_failed_message_is_edited_and_sent_again(web, queue):
    others = {"param2": "<b>\ntwo", "param3": '"3"', "colour": "red", "priority": 3}
    hooks = ["http://hooks.example/a", "http://hooks.example/b"]
    bad = ended(web, queue, param1="bad", post_run_webhook=hooks, **others)
    assert f'href="/q/t/{bad}/edit"' in web.page(f"/q/t/{bad}")
    fields = shown(web, bad)
    assert 'rows="2"' in web.page(f"/q/t/{bad}/edit")  # of param2
    assert fields["mesg[post_run_webhook]"] == " ".join(hooks)
    fields |= {"mesg[param1]": "good", "mesg[param3]": "", "mesg[unique_key]": "k"}
    answer = web.post(f"/q/t/{bad}/edit", fields)
    assert answer.status == 303, answer
    new = answer.headers["location"].rpartition("/")[2]
    found = view(web, new)
    asked = {**others, "param1": "good", "unique_key": "k", "cloned_from": bad}
    asked |= {"post_run_webhook": hooks, "param3": None}
    assert {name: found.get(name) for name in asked} == asked
    assert view(web, bad)["acknowledged"]
    assert view(web, bad)["param1"] == "bad"
    assert f'href="/q/t/{bad}/edit"' in web.page(f"/q/t/{bad}")


def test_one_that_is_done_may_wait_until_it_is_due(web, queue):
    done = ended(web, queue, param1="good")
    answer = web.post(
        f"/q/t/{done}/edit", {**shown(web, done), "when": "2100-01-02 03:04"}
    )
    new = answer.headers["location"].rpartition("/")[2]
    found = view(web, new)
    assert (found["state"], found["due"]) == ("que", 4102542240.0)
    assert view(web, done)["state"] == "done"
    queue.ok("delete_message", {"msg_id": new})


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({}, 422, "nothing was changed"),
        ({"mesg[param2]": "x", "mesg[priority]": "12"}, 422, "priority"),
        ({"mesg[param2]": "x", "when": "soon"}, 422, "not a time: 'soon'"),
        ({"mesg[param2]": "x", "mesg[dest]": "other"}, 422, "mesg[dest] cannot be"),
    ],
)
def test_what_is_refused_comes_back_as_it_was_filled_in(
    web, queue, changed, status, said
):
    bad = ended(web, queue, param1="bad")
    fields = {**shown(web, bad), **changed}
    before = queue.ask("num_messages")
    answer = web.post(f"/q/t/{bad}/edit", fields, Accept=BROWSER)
    page = html.unescape(answer.text)
    assert (answer.status, said in page) == (status, True), page
    assert f'action="/q/t/{bad}/edit"' in page
    assert ">bad</textarea>" in page
    assert f">{changed.get('mesg[param2]', '')}</textarea>" in page
    told = web.post(f"/q/t/{bad}/edit", {**fields, "x_format": "json"})
    assert (told.status, told.json[0]) == (200, "fail")
    assert queue.ask("num_messages") == before
    assert "acknowledged" not in view(web, bad)


def test_a_form_that_is_sent_twice_is_one_message_and_with_other_fields_refused(
    web, queue
):
    bad = ended(web, queue, param1="bad")
    fields = {**shown(web, bad), "mesg[param1]": "good"}
    first, again = (web.post(f"/q/t/{bad}/edit", fields) for _ in range(2))
    assert first.status == again.status == 303
    assert first.headers["location"] == again.headers["location"]
    other = web.post(
        f"/q/t/{bad}/edit", {**fields, "mesg[param1]": "x"}, Accept=BROWSER
    )
    assert other.status == 412
    assert "no longer as you have seen it, it is dismissed-1" in other.text
    assert f'name="if_version" value="{fields["if_version"]}"' in other.text


def test_a_program_is_told_the_address_of_the_new_message(web, queue):
    bad = ended(web, queue, param1="bad")
    fields = {"x_format": "json", "mesg[param1]": "good"}
    word, url = web.post(f"/q/t/{bad}/edit", fields).json
    new = url.rpartition("/")[2]
    assert (word, view(web, new)["cloned_from"]) == ("ok", bad)


def test_only_a_message_that_has_ended_is_edited(web, queue):
    url = queue.ok("create_message", {"dest": "t", "param1": "later", "due": 4e9})
    msg_id = url.rpartition("/")[2]
    assert "/edit" not in web.page(f"/q/t/{msg_id}")
    assert web.get(f"/q/t/{msg_id}/edit", Accept=BROWSER).status == 409
    answer = web.post(f"/q/t/{msg_id}/edit", {"mesg[param1]": "x"}, Accept=BROWSER)
    assert answer.status == 409
    for wrong in ("x", "20200101.0000.00.000.1"):
        assert web.get(f"/q/t/{wrong}/edit").status == 404
        assert web.post(f"/q/t/{wrong}/edit", {"mesg[param1]": "x"}).status == 404
    queue.ok("delete_message", {"msg_id": msg_id})


def test_another_site_cannot_send_the_form(web, queue):
    bad = ended(web, queue, param1="bad")
    evil = {"Origin": "http://evil.example"}
    answer = web.post(f"/q/t/{bad}/edit", {"mesg[param1]": "x"}, **evil)
    assert answer.status == 403
    assert "acknowledged" not in view(web, bad)


def test_a_new_message_says_its_priority_and_its_unique_key(web, queue):
    page = web.page("/q/t/new_message?unique_key=mine&priority=4")
    assert re.search(r'name="mesg\[unique_key\]" value="mine"', page)
    assert re.search(r'name="mesg\[priority\]" value="4"', page)
    fields = {"mesg[dest]": "t", "mesg[unique_key]": "mine", "mesg[priority]": "4"}
    answer = web.post("/q/t/new_message", {**fields, "x_format": "html"})
    found = web.get(f"{answer.headers['location']}.json").json
    assert (found["unique_key"], found["priority"]) == ("mine", 4)
    config = queue.root.queue("t").config
    kept = config.read_text()
    settings = {**json.loads(kept), "unique": {}}
    config.write_text(json.dumps(settings))
    try:
        assert "mesg[unique_key]" not in web.page("/q/t/new_message")
    finally:
        config.write_text(kept)
