"""Rows over HTTP: handed in line by line, accepted by the commit that names their file."""

import json

import pytest
from harness.waiting import wait_until
from harness.web_server import served

pytestmark = pytest.mark.system

API = "/api/v1/queues"
JSON, LINES = "application/json", "application/x-ndjson"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("rows")) as web:
        web.queue("echo done >&3", "rows", num_workers=0)
        web.queue("echo done >&3", "batches", batch={"max": 5, "wait": 1})
        yield web


def post(web, path, value=None, kind=JSON):
    body = value if isinstance(value, bytes) else json.dumps(value or {}).encode()
    return web.ask("POST", f"{API}/{path}", body, Content_Type=kind)


def opened(web, queue):
    return post(web, f"{queue}/txn").json


def test_rows_are_accepted_by_the_commit_that_names_their_file(web):
    view = opened(web, "rows")
    assert view["takes_rows"] is True
    place = f"rows/txn/{view['txn']}"
    told = post(web, f"{place}/rows", b'{"param1": "a"}\n\n{"param1": "b"}\n', LINES)
    assert (told.status, told.json["messages"]) == (200, 2)
    one = post(web, f"{place}/rows", {"param1": "c"}).json
    assert one["messages"] == 1
    chosen = {"ids": [], "rows": [told.json["rows"], one["rows"]]}
    for _ in range(2):
        answer = post(web, f"{place}/commit", chosen)
        assert (answer.status, answer.json["messages"]) == (200, 3)
    others = {"ids": [], "rows": [one["rows"]]}
    problem = post(web, f"{place}/commit", others)
    assert (problem.status, problem.json["kind"]) == (409, "wrong_state")

    def waiting():
        listed = web.ask("GET", f"{API}/rows/messages?state=que").json["messages"]
        return sorted(message["param1"] for message in listed) == ["a", "b", "c"]

    wait_until(waiting)


@pytest.mark.parametrize(
    ("lines", "status", "text"),
    [
        (b"", 422, "a list of 1 to 5,000 messages"),
        (b"{}\n" * 5001, 422, "a list of 1 to 5,000 messages"),
        (b"{}\n[]\n", 422, "messages[1]: it is not a JSON object"),
        (b'{"due": 5}\n', 422, "messages[0]: due is not for rows"),
        (b"{}\n{\n", 422, "line 2 is not JSON"),
    ],
)
def test_rows_that_cannot_be_messages_are_a_problem(web, lines, status, text):
    txn = opened(web, "rows")["txn"]
    answer = post(web, f"rows/txn/{txn}/rows", lines, LINES)
    assert answer.status == status
    assert text in answer.json["detail"]


def test_a_queue_that_compares_what_waits_says_so(web):
    view = opened(web, "batches")
    assert view["takes_rows"] is False
    answer = post(web, f"batches/txn/{view['txn']}/rows", {"param1": "a"})
    assert (answer.status, answer.json["kind"]) == (409, "wrong_state")
    assert "takes no rows" in answer.json["detail"]
    unknown = post(web, "rows/txn/20260102.0304.05.006.8/rows", {"param1": "a"})
    assert unknown.status == 404
