"""Equal messages over HTTP: 200 and the one that stands, or a problem that names it."""

import json

import pytest
from harness.web_server import served

pytestmark = pytest.mark.system

API = "/api/v1/queues"
JSON, LINES = "application/json", "application/x-ndjson"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("unique")) as web:
        for conflict in ("join", "reject"):
            setting = {"params": [1], "conflict": conflict}
            web.queue("echo done >&3", conflict, num_workers=0, unique=setting)
        yield web


def post(web, path, value=None, kind=JSON, **headers):
    body = value if isinstance(value, bytes) else json.dumps(value or {}).encode()
    return web.ask("POST", f"{API}/{path}", body, Content_Type=kind, **headers)


def test_what_joins_is_answered_200_with_the_one_that_stands(web):
    first = post(web, "join/messages", {"param1": "a"})
    assert (first.status, "joined" in first.json) == (201, False)
    key = {"Idempotency_Key": "k"}
    again = post(web, "join/messages", {"param1": "a"}, **key)
    assert (again.status, again.json) == (200, {**first.json, "joined": True})
    repeated = post(web, "join/messages", {"param1": "a"}, **key)
    assert (repeated.status, repeated.json) == (200, again.json)


def test_what_is_rejected_is_a_problem_with_the_one_that_stands(web):
    first = post(web, "reject/messages", {"param1": "b"}).json["msg_id"]
    answer = post(web, "reject/messages", {"param1": "b"})
    problem = answer.json
    assert (answer.status, problem["kind"]) == (409, "not_unique")
    assert problem["msg_id"] == first
    assert first in problem["detail"]


@pytest.mark.parametrize("queue", ["join", "reject"])
def test_lines_tell_who_stands(web, queue):
    lines = b'{"param1": "line"}\n{"param1": "line"}\n'
    answer = post(web, f"{queue}/messages/bulk", lines, LINES)
    first, second = map(json.loads, answer.body.splitlines())
    assert second["msg_id"] == first["msg_id"]
    assert (second.get("joined"), second.get("kind")) == (
        (True, None) if queue == "join" else (None, "not_unique")
    )


def test_a_commit_tells_whom_it_has_joined(web):
    form = {"mesg": json.dumps({"dest": "join", "param1": "c", "_method": "prep"})}
    _, url = web.post("/q/join/new_message", form).json
    stands = post(web, "join/messages", {"param1": "c"}).json["url"]
    acted = post(web, f"join/messages/{url.rpartition('/')[2]}/commit").json
    assert (acted["text"], acted["joined"]) == ("msg commited", stands)


def test_a_form_says_that_nothing_new_was_made(web):
    form = {"mesg": json.dumps({"dest": "join", "param1": "f"}), "x_format": "html"}
    web.post("/q/join/new_message", form)
    answer = web.post("/q/join/new_message", form)
    cookie = answer.headers["set-cookie"].partition(";")[0]
    page = web.get(answer.headers["location"], Cookie=cookie).text
    assert "nothing new was made" in page


def test_a_transaction_with_an_equal_message_is_a_problem(web):
    first = post(web, "join/messages", {"param1": "t"}).json["msg_id"]
    txn = post(web, "join/txn").json["txn"]
    ids = post(web, f"join/txn/{txn}/messages", {"param1": "t"}).json["ids"]
    answer = post(web, f"join/txn/{txn}/commit", {"ids": ids})
    assert (answer.status, answer.json["msg_id"]) == (409, first)
