"""The ancestor's routes for messages, asked as its clients asked them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import socket
import time

import pytest
from harness.waiting import wait_until
from harness.web_server import BROWSER, served

from rq.access import gate, tokens
from rq.access.roles import Role
from rq.access.tokens import Token

pytestmark = pytest.mark.system

DONE = "echo done ok >&3"
SLEEP = "exec sleep 60"
ERR = "echo err no >&3"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")  # where the server is does not matter
        with served(tmp_path_factory.mktemp("rest")) as found:
            found.queue(DONE, "plain")
            yield found


@pytest.mark.slow
def test_a_message_is_sent_urlencoded_and_multipart_alike(web):
    mesg = json.dumps({"dest": "plain", "param1": 'a & b = "c" é'})
    first = web.post("/q/plain/new_message", {"x_format": "json", "mesg": mesg})
    second = web.multipart("/q/plain/new_message", {"x_format": "json", "mesg": mesg})
    for answer in (first, second):
        assert (answer.status, answer.kind) == (200, "application/json")
        word, full_id = answer.json
        assert word == "ok"
        base = f"http://127.0.0.1:{web.port}/q/plain/"
        assert full_id.startswith(base)
        found = web.get(f"/q/plain/{full_id.removeprefix(base)}.json").json
        assert found["param1"] == 'a & b = "c" é'


def test_a_field_that_would_be_without_effect_is_refused_by_its_right_name(web):
    for name, right in (
        ("delay", "say due"),
        ("max_cuont", "did you mean 'max_count'"),
    ):
        mesg = json.dumps({"dest": "plain", name: 5})
        word, text = web.post("/q/plain/new_message", {"mesg": mesg}).json
        assert (word, right in text) == ("fail", True)
        form = {"mesg[dest]": "plain", f"mesg[{name}]": "5", "x_format": "html"}
        answer = web.post("/q/plain/new_message", form, Accept=BROWSER)
        assert answer.status == 422
        assert right in html.unescape(answer.text)
    web.send("plain", x_delay=5, param5="own")


def test_what_is_to_be_done_is_said_in_the_message_or_beside_it(web):
    mesg = json.dumps({"dest": "plain", "param1": "x"})
    path = "/q/plain/new_message"
    word, full_id = web.post(path, {"_method": "prep", "mesg": mesg}).json
    assert word == "ok"
    assert web.state("plain", full_id.rpartition("/")[2]) == "prep"
    answer = web.post(path, {"_method": "prepare", "mesg": mesg})
    assert answer.status == 400
    assert "none of commit, prep, single_que" in answer.json["detail"]
    inside = json.dumps({"dest": "plain", "_method": "prep"})
    word, full_id = web.post(path, {"_method": "commit", "mesg": inside}).json
    assert web.state("plain", full_id.rpartition("/")[2]) == "prep"


def test_a_message_of_megabytes_is_refused_in_words_of_messages(web):
    mesg = json.dumps({"dest": "plain", "x_own": "a" * 3_000_000})
    word, text = web.post("/q/plain/new_message", {"mesg": mesg}).json
    assert word == "fail"
    assert "at most 1044480 can be taken; send large data as an attachment" in text


@pytest.mark.parametrize("method", ["commit", "prep", "single_que"])
@pytest.mark.parametrize(
    "dest", ["other", "http://127.0.0.1:3333/q/other", "/q/other", "http://h:1/plain"]
)
def test_a_message_for_another_queue_than_that_of_the_route_is_refused(
    web, dest, method
):
    mesg = json.dumps({"dest": dest, "_method": method})
    answer = web.post("/q/plain/new_message", {"mesg": mesg})
    assert answer.status == 422
    assert "messages go to plain" in answer.json["detail"]


@pytest.mark.parametrize(
    "dest",
    ["plain", "http://other.example:9/any/q/plain", "https://h/q/plain/", "/q/plain"],
)
def test_a_message_may_name_its_queue_by_any_address(web, dest):
    mesg = json.dumps({"dest": dest})
    assert web.post("/q/plain/new_message", {"mesg": mesg}).json[0] == "ok"


def test_fields_of_a_form_are_a_message_too(web):
    fields = {
        "mesg[dest]": "plain",
        "mesg[param1]": "one",
        "mesg[param2]": "",
        "mesg[due]": "",
        "mesg[post_run_webhook]": "http://hooks.example/a http://hooks.example/b",
        "mesg[_method]": "prep",
        "x_format": "html",
    }
    answer = web.post("/q/plain/new_message", fields, Accept=BROWSER)
    assert answer.status == 303
    place = answer.headers["location"]
    found = web.get(f"{place}.json").json
    assert found["state"] == "prep"
    assert found["param1"] == "one"
    assert "param2" not in found
    assert found["post_run_webhook"] == [
        "http://hooks.example/a",
        "http://hooks.example/b",
    ]


def test_a_refused_message_keeps_200_and_says_fail(web):
    answer = web.post("/q/plain/new_message", {"mesg": '{"param1": "x"}'})
    assert answer.status == 200
    assert answer.json == ["fail", 'input missing required "dest" parameter']


def test_what_is_no_message_is_refused_with_a_status(web):
    cases = {
        "{": 422,
        "[]": 422,
        "": 422,
        '{"dest":"plain","_method":"explode"}': 400,
    }
    for mesg, status in cases.items():
        answer = web.post("/q/plain/new_message", {"mesg": mesg})
        assert (answer.status, answer.kind) == (status, "application/problem+json")
    assert web.post("/q/plain/new_message").status == 422
    answer = web.ask("POST", "/q/plain/new_message", b"{}", Content_Type="text/plain")
    assert answer.status == 415
    huge = {"mesg": "x" * 5_000_000}
    assert web.post("/q/plain/new_message", huge).status == 413
    assert web.multipart("/q/plain/new_message", huge).status == 413


def test_half_a_form_is_no_message(web):
    """A client that dies in the middle has sent nothing."""
    body = b"mesg%5Bdest%5D=plain&mesg%5Bparam1%5D=half"
    head = (
        b"POST /q/plain/new_message HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n"
    )
    mark = b"multipart/form-data; boundary=x"
    multipart = (
        b"POST /q/plain/new_message HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        + mark
        + b"\r\nContent-Length: 500\r\n\r\n--x\r\n"
        b'Content-Disposition: form-data; name="mesg"\r\n\r\n{"dest":"plain"}\r\n'
    )
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body
    before = web.daemon.messages("plain")
    for data in (head + b"Content-Length: 500\r\n\r\n" + body, multipart, chunked):
        with socket.create_connection(("127.0.0.1", web.port), timeout=60) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            assert b" 200 " not in sock.recv(4096)
    assert web.get("/livez").status == 200
    assert web.daemon.messages("plain") == before


def test_a_message_of_nearly_a_megabyte_is_taken(web):
    msg_id = web.send("plain", extra="é" * 400_000)
    found = web.get(f"/q/plain/{msg_id}.json").json
    assert len(found["extra"]) == 400_000


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("to be removed", "soon", "soon"),
        ("x_seen_at", 10**17, "100000000000000000"),
        ("x_seen_at", 1795363441, "1795363441"),
    ],
)
def test_a_page_shows_a_sender_s_field_as_it_is_whatever_its_name(
    web, name, value, text
):
    page = web.page(f"/q/plain/{web.send('plain', **{name: value})}")
    assert f"<dt>{name}</dt><dd>{text}</dd>" in page


def test_a_copy_of_a_message_for_the_cleaner_takes_who_may_send_one(web):
    """The relay's messages name other queues; a clone of one is sent there, too."""
    relay, root = web.queue(DONE, "relay"), web.daemon.root
    sent = web.send(relay, dest="http://127.0.0.1:3333/q/cleaner", param1="plain")
    other = web.send(relay, dest="http://127.0.0.1:3333/q/plain")
    for msg_id in (sent, other):
        wait_until(lambda msg_id=msg_id: web.state(relay, msg_id) == "done")
    now, secret = time.time(), tokens.new_secret()
    tokens.create(
        root,
        Token(
            name="sender",
            sha256=tokens.digest_of(secret),
            role=Role.PRODUCER,
            created=now,
            created_by="test",
        ),
    )
    sender = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
    fields = {"x_format": "json"}
    gone = "20260102.0304.05.006.7"
    assert web.post(f"/q/{relay}/{other}/clone", fields, **sender).json[0] == "ok"
    assert web.post(f"/q/{relay}/{gone}/clone", fields, **sender).json[0] == "fail"
    assert web.post(f"/q/{relay}/{sent}/clone", fields, **sender).status == 403
    assert web.post(f"/q/{relay}/{sent}/clone", fields).json[0] == "ok"


def test_single_que_gives_the_waiting_message(web):
    name = web.queue(DONE)
    web.post(f"/q/{name}/adminoper", {"pause": "1"})
    first = web.send(name)
    assert web.send(name, _method="single_que") == first


def test_a_key_that_is_sent_twice_gives_the_same_message(web):
    assert web.send("plain", _key="k1") == web.send("plain", _key="k1")


def test_a_message_is_shown_with_its_state_and_status(web):
    msg_id = web.send("plain", param1="x")
    wait_until(lambda: web.state("plain", msg_id) == "done")
    found = web.get(f"/q/plain/{msg_id}.json").json
    assert (found["state"], found["status"]) == ("done", "done - ok")
    assert found["path"].startswith("queue/plain/done/")


def test_a_message_that_is_not_there_is_404(web):
    for msg_id in ("20260102.0304.05.006.7", "nonsense", "*"):
        assert web.get(f"/q/plain/{msg_id}.json").status == 404
        assert web.get(f"/q/plain/{msg_id}/state.json").status == 404
        assert web.post(f"/q/plain/{msg_id}/clone").status == 404
        assert web.post(f"/q/plain/{msg_id}/run_now").status == 404


def test_a_prepared_message_is_committed_once(web):
    msg_id = web.send("plain", _method="prep")
    assert web.state("plain", msg_id) == "prep"
    fields = {"_method": "commit", "x_format": "json", "msg_id": msg_id}
    assert web.post(f"/q/plain/{msg_id}", fields).json == ["ok", "msg commited"]
    again = web.multipart(f"/q/plain/{msg_id}", fields)
    assert again.json == ["ok", "msg already commited"]


def test_a_message_is_deleted(web):
    msg_id = web.send("plain", _method="prep")
    answer = web.post(f"/q/plain/{msg_id}", {"_method": "delete"})
    assert (answer.status, answer.headers["location"]) == (303, "/q/plain")
    fields = {"_method": "delete", "x_format": "json"}
    assert web.post(f"/q/plain/{msg_id}", fields).json[0] == "fail"


def test_a_running_message_is_destroyed_or_cancelled(web):
    name = web.queue(SLEEP, num_workers=2)
    first, second = web.send(name), web.send(name)
    for msg_id, method, word in (
        (first, "destroy", "msg destroyed"),
        (second, "cancel", "msg is being cancelled"),
    ):
        wait_until(lambda one=msg_id: web.state(name, one) == "run")
        fields = {"_method": method, "x_format": "json"}
        assert web.post(f"/q/{name}/{msg_id}", fields).json == ["ok", word]
        wait_until(lambda one=msg_id: web.state(name, one) == "err")
        story = web.get(f"/q/{name}/{msg_id}.json").json["result"]
        assert f"cancelled by {gate.user_name(os.getuid())}" in json.dumps(story)


def test_a_failed_message_is_acknowledged_and_retried(web):
    name = web.queue("test -e again && echo done ok >&3; touch again; exit 1")
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "err")
    answer = web.post(f"/q/{name}/{msg_id}", {"_method": "ack", "x_format": "json"})
    assert answer.json == ["ok", 1]
    assert web.get(f"/q/{name}.json").json["err_size"] == 0
    other = web.send(name)
    wait_until(lambda: web.state(name, other) == "err")
    answer = web.post(f"/q/{name}/{other}", {"_method": "retry", "x_format": "json"})
    assert answer.json[0] == "ok"


def test_a_message_is_run_before_it_is_due(web):
    msg_id = web.send("plain", due=4_000_000_000)
    for word in ("run", "run_now"):  # the word of before, too
        assert web.get(f"/q/plain/{msg_id}/confirm/{word}").status == 200
    answer = web.post(f"/q/plain/{msg_id}/run_now")
    assert (answer.status, answer.headers["location"]) == (303, f"/q/plain/{msg_id}")
    wait_until(lambda: web.state("plain", msg_id) == "done")
    refused = web.post(f"/q/plain/{msg_id}/run_now")
    assert (refused.status, refused.kind) == (409, "application/problem+json")
    back = web.post(f"/q/plain/{msg_id}/run_now", {"back": "/q/plain"})
    assert (back.status, back.headers["location"]) == (303, "/q/plain")


def test_a_message_that_ended_is_cloned(web):
    msg_id = web.send("plain", param1="again")
    wait_until(lambda: web.state("plain", msg_id) == "done")
    answer = web.post(f"/q/plain/{msg_id}/clone", {"x_format": "json"})
    word, full_id = answer.json
    assert word == "ok"
    found = web.get(f"/q/plain/{full_id.rpartition('/')[2]}.json").json
    assert (found["cloned_from"], found["param1"]) == (msg_id, "again")


def test_an_unknown_method_is_400(web):
    msg_id = web.send("plain")
    answer = web.post(f"/q/plain/{msg_id}", {"_method": "explode"})
    assert answer.status == 400
    assert "400 - Invalid method param" in answer.json["detail"]


def test_a_refused_change_is_an_error_for_who_names_no_way_back(web):
    msg_id = web.send("plain", due=4_000_000_000)
    nobody = "20260102.0304.05.006.7"
    for path, method, status in (
        (f"/q/plain/{msg_id}", "retry", 409),
        (f"/q/plain/{nobody}", "delete", 404),
        (f"/owed/plain/{nobody}", "explode", 400),
        (f"/q/plain/{msg_id}/attach/x", "explode", 400),
    ):
        answer = web.post(path, {"_method": method})
        assert (answer.status, answer.kind) == (status, "application/problem+json")
        assert len(answer.json["detail"]) < 250
    back = web.post(f"/q/plain/{msg_id}", {"_method": "retry", "back": "/"})
    assert (back.status, back.headers["location"]) == (303, "/")


def test_a_form_that_cannot_be_read_is_refused_in_a_sentence(web):
    msg_id = web.send("plain", _method="prep")
    kind = "multipart/form-data"
    for path in ("/q/plain/new_message", f"/q/plain/{msg_id}/attach/new"):
        for body, content_type in (
            (b"junk", f"{kind}; boundary=x"),
            (b"--x\r\njunk", f"{kind}; boundary=x"),
            (b"junk", kind),
            (b"", f"{kind}; boundary=x"),
        ):
            answer = web.ask("POST", path, body, Content_Type=content_type)
            assert answer.status in (400, 422), (path, body)
            assert answer.json["detail"].count("\n") == 0
    fields = {str(number): "x" for number in range(2000)}
    assert web.post("/q/plain/new_message", fields).status == 400


def test_a_browser_sees_a_refusal_on_the_form_as_it_was_filled_in(web):
    written = {
        "mesg[dest]": "plain",
        "mesg[param1]": "<b>one & two</b>",
        "mesg[src]": "me",
        "mesg[_method]": "prep",
        "mesg[count]": "many",
        "when": "+1h",
        "x_format": "html",
        "back": "/q/plain",
    }
    before = web.daemon.messages("plain")
    for wrong, said in (
        ({"mesg[dest]": ""}, "missing required"),
        ({}, "count is not a whole number"),
        ({"when": "soon"}, "not a time: 'soon'; say +10m"),
    ):
        fields = {**written, **wrong}
        answer = web.post("/q/plain/new_message", fields, Accept=BROWSER)
        assert (answer.status, answer.kind) == (422, "text/html")
        shown = html.unescape(answer.text)
        assert said in shown
        assert ">&lt;b&gt;one &amp; two&lt;/b&gt;</textarea>" in answer.text
        assert f'value="{fields["when"]}"' in shown
        assert 'value="prep" checked' in shown
    asked = web.post("/q/plain/new_message", written, Accept="application/json")
    assert (asked.status, asked.kind) == (422, "application/problem+json")
    assert web.daemon.messages("plain") == before


def test_a_form_says_when_a_message_is_due(web):
    fields = {"mesg[dest]": "plain", "x_format": "html"}
    for when, due in (
        ("2100-01-02 03:04", 4102542240.0),
        ("2100-01-02T03:04:00+00:00", 4102542240.0),
        ("@4102542240", 4102542240.0),
    ):
        answer = web.post("/q/plain/new_message", {**fields, "when": when})
        found = web.get(f"{answer.headers['location']}.json").json
        assert (found["state"], found["due"]) == ("que", due)
    began = time.time()
    answer = web.post(
        "/q/plain/new_message", {"mesg": '{"dest":"plain"}', "when": "2h"}
    )
    short = answer.json[1].rpartition("/")[2]
    due = web.get(f"/q/plain/{short}.json").json["due"]
    assert began + 7200 <= due <= time.time() + 7200
    for wrong in ("soon", "-5m", "9" * 400 + "d", "2100-13-01", "\0", "é" * 5000):
        asked = {"mesg": '{"dest":"plain"}', "when": wrong}
        answer = web.post("/q/plain/new_message", asked)
        said = answer.json[1] if answer.status == 200 else answer.json["detail"]
        assert "time" in said or "due" in said, wrong
        assert len(said) < 250


def test_the_form_has_a_field_for_when_and_takes_it_from_its_address(web):
    page = web.get("/q/plain/new_message?when=%2B10m&param1=x", Accept=BROWSER)
    assert re.search(r'name="when" value="\+10m"', html.unescape(page.text))
    assert 'name="mesg[param1]"' in page.text


def test_with_rules_for_the_router_what_is_sent_goes_there(web):
    web.queue(DONE, "rq_router")
    rules = web.daemon.root.router
    rules.write_text('{"rules": []}')
    try:
        mesg = json.dumps({"dest": "plain"})
        word, full_id = web.post("/q/plain/new_message", {"mesg": mesg}).json
        assert word == "ok"
        assert "/q/rq_router/" in full_id
    finally:
        rules.unlink()


def test_a_sender_does_not_say_how_rq_finds_its_message(web):
    planted = {"acknowledged": True, "_txn": "20260102.0304.05.006.8", "phase": "x"}
    msg_id = web.send("plain", due=time.time() + 1000, colour="red", **planted)
    told = web.get(f"/q/plain/{msg_id}.json").json
    assert told["colour"] == "red"
    assert planted.keys() & told.keys() == set()
    page = web.page(f"/q/plain/{msg_id}")
    assert f"/q/plain/{msg_id}/confirm/delete" in page
    web.post(f"/q/plain/{msg_id}", {"_method": "delete", "x_format": "json"})


@pytest.mark.parametrize("msg_id", ["x", "20260102.0304.05.006", "2026%2e%2e"])
def test_what_is_no_id_is_answered_as_the_ancestor_did(web, msg_id):
    asked = {"x_format": "json"}
    for method, said in (
        ("commit", "cannot find message"),
        ("delete", "msg not found"),
        ("destroy", "msg not found"),
    ):
        answer = web.post(f"/q/plain/{msg_id}", {**asked, "_method": method})
        assert (answer.status, answer.json) == (200, ["fail", said])
    path = f"/q/plain/{msg_id}/attach"
    answer = web.multipart(f"{path}/new", asked, {"filedata": ("a", b"x")})
    assert (answer.status, answer.json) == (200, ["fail", "cannot find message"])
    answer = web.post(f"{path}/a.bin", {**asked, "_method": "delete"})
    assert (answer.status, answer.json) == (200, ["fail", "msg not found"])
    assert web.post(f"/q/plain/{msg_id}", {"_method": "delete"}).status == 404


def test_a_field_that_a_form_hides_is_hidden_as_the_ancestor_hid_it(web):
    name = web.queue(DONE)
    form = web.daemon.root.queue(name).form
    form.write_text('{"default": "hidden", "mesg_param1": {"label": "Frames"}}')
    page = web.get(f"/q/{name}/new_message", Accept=BROWSER)
    hidden = 'id="mesg_param2_field" hidden style="display: none;"'
    assert hidden in page.text
    assert 'id="mesg_param1_field">' in page.text
    policy = page.headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(b"display: none;").digest()).decode()
    assert f"style-src-attr 'unsafe-hashes' 'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy
