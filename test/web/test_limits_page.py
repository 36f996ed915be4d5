"""Limits where people see them: pages, JSON, `rq show`, `rq send`."""

import json

import pytest
from harness.cli import rq
from harness.queues import running_queue
from harness.web_server import web_alone

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    limits = {"timeout": 600, "memory": "512 MiB", "grace": 0.2}
    with running_queue(root, **limits) as queue:
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def test_a_queue_shows_its_limits(queue, web):
    told = {"timeout": 600.0, "memory": 512 * 2**20, "grace": 0.2}
    assert queue.ok("detail")["limits"] == told
    assert "Limits: timeout 10 min, grace 200 ms, memory 512 MiB." in web.page("/q/t")


def test_a_message_shows_what_holds_for_it(queue, web):
    later = {"due": 4e9, "deadline": 5e9, "log_bytes": "1 MiB"}
    msg_id = queue.send(timeout="5m", **later)
    told = queue.get(msg_id)
    assert told["timeout"] == 300.0
    assert told["_limits"]["timeout"] == 300.0
    assert told["_limits"]["memory"] == 512 * 2**20
    shown = rq("show", f"t/{msg_id}", root=queue.root.path).stdout
    rows = [line.split() for line in shown.splitlines()]
    for row in (
        ["timeout", "5", "min"],
        ["memory", "512", "MiB"],
        ["log", "1", "MiB"],
        ["deadline", "2128-06-11", "08:53:20", "UTC"],
    ):
        assert row in rows, shown
    page = web.page(f"/q/t/{msg_id}")
    assert "<dt>timeout</dt><dd>5 min</dd>" in page
    assert "<dt>memory</dt><dd>512 MiB</dd>" in page
    queue.ok("delete_message", {"msg_id": msg_id})


def test_what_was_killed_says_why(queue, web):
    message = queue.run(param1="sleep 60", timeout=0.3)
    place = f"t/{message['msg_id']}"
    for text in (
        rq("show", place, root=queue.root.path).stdout,
        web.page(f"/q/{place}"),
    ):
        assert "it took too long" in text
        assert "over its timeout of 300 ms" in text


def test_the_command_line_sends_limits(queue):
    words = [
        "--limit",
        "timeout=10m",
        "--limit",
        "memory=1 MiB",
        "--limit",
        "deadline=+1h",
    ]
    sent = rq("send", "t", "--due", "+1h", "--json", *words, root=queue.root.path)
    msg_id = json.loads(sent.stdout)["msg_id"]
    told = queue.get(msg_id)
    assert (told["timeout"], told["memory"]) == (600.0, 2**20)
    queue.ok("delete_message", {"msg_id": msg_id})
    for pair, why in [
        ("speed=9", "NAME is one of timeout"),
        ("timeout=x", "not a duration"),
    ]:
        refused = rq("send", "t", "--limit", pair, root=queue.root.path)
        assert refused.returncode == 2
        assert why in refused.stderr
