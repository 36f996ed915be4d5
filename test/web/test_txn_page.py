"""Transactions in the browser: what is prepared is seen, and can be ended."""

import pytest
from harness.queues import running_queue
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, "#!/bin/sh\necho done >&3\n") as queue:
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def opened(queue, number=0, key=None):
    """Open a transaction with some messages; return its id and theirs."""
    txn = queue.ok("open_txn", {"key": key})["txn"]
    wanted = [{"param1": str(one)} for one in range(number)]
    return txn, queue.ok("prepare_txn", {"txn": txn, "messages": wanted})


def page(web, path):
    assert HOSTILE not in web.get(path, Accept=BROWSER).text
    return web.page(path)


def question(web, path):
    return web.get(path, Accept="application/json").json


def test_an_open_transaction_is_on_the_page_of_its_queue_and_has_its_own(queue, web):
    txn, ids = opened(queue, 3, HOSTILE)
    empty, _ = opened(queue)
    for path in ("/q/t", "/q/t/txn"):
        shown = page(web, path)
        for text in (txn, empty, HOSTILE, f"/q/t/txn/{txn}/confirm/abort"):
            assert text in shown, path
    shown = page(web, f"/q/t/txn/{txn}")
    for text in (*ids, HOSTILE, "3 prepared messages", f"rq txn abort t {txn}"):
        assert text in shown
    assert "None is prepared yet" in page(web, f"/q/t/txn/{empty}")
    twin = web.get("/q/t/txn.json").json["transactions"]
    numbers = {one["txn"]: one["messages"] for one in twin}
    assert (numbers[txn], numbers[empty]) == (3, 0)


def test_a_message_of_a_transaction_leads_to_it_and_is_not_decided_alone(queue, web):
    txn, [msg_id] = opened(queue, 1)
    alone = queue.ok("prep_message", {"dest": "t"}).rpartition("/")[2]
    shown = page(web, f"/q/t/{msg_id}")
    assert f'href="/q/t/txn/{txn}"' in shown
    for verb in ("commit", "delete"):
        assert f"/q/t/{msg_id}/confirm/{verb}" not in shown
        assert f"/q/t/{alone}/confirm/{verb}" in page(web, f"/q/t/{alone}")
    listed = page(web, "/q/t?state=prep")
    assert f"/q/t/{msg_id}/confirm/commit" not in listed
    assert f"/q/t/{alone}/confirm/commit" in listed


def test_one_that_nobody_commits_is_aborted_by_a_person(queue, web):
    txn, ids = opened(queue, 2)
    asked = question(web, f"/q/t/txn/{txn}/confirm/abort")
    answer = web.post(asked["post"], asked["fields"])
    assert (answer.status, answer.headers["location"]) == (303, "/q/t/txn")
    assert queue.ok("show_txn", {"txn": txn})["state"] == "aborted"
    assert web.get(f"/q/t/{ids[0]}.json").status == 404
    assert "It was aborted" in page(web, f"/q/t/txn/{txn}")
    assert f"{txn}/confirm/abort" not in page(web, "/q/t/txn")
    assert txn in page(web, "/q/t/txn")
    assert txn not in page(web, "/q/t")


def test_one_that_was_committed_says_so_and_stays_so(queue, web):
    txn, ids = opened(queue, 2)
    queue.ok("commit_txn", {"txn": txn, "ids": ids[:1]})
    assert "committed, with 1 message." in page(web, f"/q/t/txn/{txn}")
    refused = web.post(f"/q/t/txn/{txn}", {"_method": "abort"})
    assert (refused.status, refused.kind) == (409, "application/problem+json")
    assert "committed already" in refused.json["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/q/t/txn/20200101.0000.00.000.1", 404),
        ("GET", "/q/t/txn/nothing", 404),
        ("GET", "/q/t/txn/%3Cb%3E", 404),
        ("GET", "/q/nowhere/txn", 404),
        ("GET", "/q/nowhere/txn/20200101.0000.00.000.1", 404),
        ("GET", "/q/t/txn/20200101.0000.00.000.1/confirm/abort", 404),
        ("GET", "/q/t/txn/20200101.0000.00.000.1/confirm/forget", 404),
        ("POST", "/q/t/txn/20200101.0000.00.000.1", 400),
    ],
)
def test_what_is_not_there_is_refused(web, method, path, status):
    for accept in (BROWSER, "*/*"):
        asked = web.get if method == "GET" else web.post
        answer = asked(path, Accept=accept)
        assert answer.status == status
        assert len(answer.text) < 10_000
    gone = {"_method": "abort"}
    assert web.post("/q/t/txn/20200101.0000.00.000.1", gone).status == 404
