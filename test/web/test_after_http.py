"""Messages that wait for others, over HTTP: who may name which, and what readers are told of
those that they may not read."""

import json
import time

import pytest
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.web.routes import API as ROOT

pytestmark = pytest.mark.system
API = f"{ROOT}/queues"
GONE = "20260102.0304.05.006.7"
HIDDEN = "It waits for other messages to end (after)."


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("web") / "root") as web:
        yield web


def bearer(web, queue):
    """Let in a producer who may ask of one queue alone."""
    secret = tokens.new_secret()
    token = Token(
        name=f"of-{queue}", sha256=tokens.digest_of(secret), role=Role.PRODUCER,
        queues=(queue,), created=time.time(), created_by="test",
    )  # fmt: skip
    tokens.create(web.daemon.root, token)
    return {"Authorization": f"Bearer {secret}"}


def post(web, queue, header, **fields):
    body = json.dumps(fields).encode()
    path = f"{API}/{queue}/messages"
    return web.ask("POST", path, body, Content_Type="application/json", **header)


def test_a_message_of_a_queue_that_one_may_not_ask_of_cannot_be_named(web):
    queue, other = web.queue("echo done >&3"), web.queue("echo done >&3")
    theirs, mine = web.send(other), web.send(queue)
    header = bearer(web, queue)
    assert post(web, queue, header, after=[mine]).status == 201
    answers = [post(web, queue, header, after=[f"{other}/{i}"]) for i in (theirs, GONE)]
    assert [answer.status for answer in answers] == [422, 422]
    assert answers[0].text.replace(theirs, GONE) == answers[1].text
    nowhere = post(web, queue, header, after=[f"nowhere/{GONE}"])
    assert nowhere.text.replace("nowhere", other) == answers[1].text


def test_how_others_stand_is_told_to_who_may_read_them_alone(web):
    queue, other = web.queue("echo done >&3"), web.queue("echo err >&3")
    first = web.send(other)
    wait_until(lambda: web.state(other, first) == "err")
    second = web.send(queue, after=[f"{other}/{first}"])
    path, header = f"{API}/{queue}/messages", bearer(web, queue)
    wait_until(lambda: "which failed" in web.get(f"{path}/{second}").text)
    view = web.get(f"{path}/{second}", **header)
    assert view.json["_why"]["text"] == view.json["story"]["why"] == HIDDEN
    assert "which failed" not in view.text
    listed = web.get(f"{path}?state=que", **header)
    assert (HIDDEN in listed.text, "which failed" in listed.text) == (True, False)
    assert "which failed" in web.get(f"{path}?state=que").text


def test_a_page_offers_to_wait_no_longer_and_does_it(web):
    queue = web.queue("echo done >&3")
    first = web.send(queue, due=4e9)
    second = web.send(queue, after=[first])
    page = web.get(f"/q/{queue}/{second}").text
    assert "Wait no longer" in page
    assert f"/q/{queue}/{first}" in page  # as a link, among the facts
    path = f"{API}/{queue}/messages/{second}"
    answer = web.ask("POST", f"{path}/releaseAfter")
    assert answer.json["text"] == "msg waits for no other"
    wait_until(lambda: web.state(queue, second) == "done")
