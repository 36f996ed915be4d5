"""JSON that is nested deeper than anybody needs: each door refuses it in a sentence."""

from __future__ import annotations

import json
import os

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import served

from rq.config import read_json
from rq.errors import BadConfig, BadInput
from rq.rpc import client
from rq.rpc.lines.commands import COMMANDS
from rq.supervisor.commands import Commands
from rq.words import nesting

DEPTHS = [240, *range(244, 260), 300, 900, 1020, 1030, 5000, 100_000]
FIELDS = [
    "msg_id", "dest", "due", "count", "param1", "x", "_key", "key", "who", "limit", "state",
    "message", "messages", "ids", "txn", "pathname", "name", "digests", "as", "after", "dups",
    "post_run_webhook", "attachment_name", "src", "sha256", "ttl", "queue", "filter", "keep",
]  # fmt: skip


def deep(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    with running_queue(path, "#!/bin/sh\necho done >&3\n") as queue:
        yield queue


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    path = tmp_path_factory.mktemp("site")
    with served(path, allow_new_queue=True) as site:
        yield site


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"shutdown", "mind"}))
def test_no_depth_of_any_field_hurts_a_queue(queue, command):
    with client.Connection(queue.dir.socket, timeout=20) as line:
        for depth in DEPTHS:
            for field in FIELDS:
                asked = f'{{"dest": "t", "due": 4e9, "{field}": {deep(depth)}}}'
                line.send(command, asked.encode())
            for field in FIELDS:
                reply = str(line.receive())
                assert "the command failed" not in reply, (depth, field, reply)
            line.send(command, deep(depth, '{"dest":', "}").encode())
            assert "the command failed" not in str(line.receive())
    assert "Traceback" not in queue.log()


def test_three_hundred_levels_are_refused_in_a_sentence(queue):
    asked = f'{{"dest": "t", "x": {deep(300)}}}'.encode()
    assert "nested" in queue.refused("create_message", asked)


def test_a_message_as_deep_as_may_be_runs_and_is_shown_copied_and_told(queue):
    deepest = 0
    for depth in range(230, 254):
        asked = f'{{"dest": "t", "x": {deep(depth)}, "param1": {deep(depth)}}}'
        word, full_id = queue.ask("create_message", asked.encode())
        if word == "ok":
            deepest = depth
            msg_id = full_id.rpartition("/")[2]
    assert deepest >= 240
    assert queue.ended(msg_id)["state"] == "done"
    assert queue.ok("list", {"state": "done"})
    assert queue.ended(queue.ok("clone_message", {"msg_id": msg_id}).rpartition("/")[2])
    queue.check()


def test_a_deposit_that_is_nested_too_deep_goes_to_err(queue, tmp_path):
    place = queue.root.path / "deposit"
    place.mkdir()
    (place / "msg").write_text(f'{{"dest": "t", "x": {deep(300)}}}')
    before = queue.ask("num_messages")["err"]
    os.rename(place, queue.dir.path / "new" / "deposit")
    queue.ask("wake")
    wait_until(lambda: queue.ask("num_messages")["err"] == before + 1)
    assert "Traceback" not in queue.log()


@pytest.mark.parametrize("command", sorted(Commands.COMMANDS.keys() - {"shutdown"}))
def test_no_depth_hurts_the_supervisor(site, command):
    for depth in DEPTHS:
        for asked in (
            deep(depth),
            f'{{"name": "d", "script": "x", "batch": {deep(depth)}}}',
            f'{{"name": "d", "script": "x", "env_vars": {{"A": {deep(depth)}}}}}',
            f'{{"name": "d", "script": "x", "nosuch": {deep(depth)}}}',
            f'{{"name": {deep(depth)}, "config": {{"name": {deep(depth)}}}}}',
        ):
            assert "the command failed" not in str(site.daemon.ask(command, asked))


@pytest.mark.parametrize("depth", [300, 900, 1030, 20_000])
def test_the_web_answers_422_to_what_is_nested_too_deep(site, depth):
    name = site.queue("echo done >&3")
    mesg = f'{{"dest": "{name}", "x": {deep(depth)}}}'
    answer = site.post(f"/q/{name}/new_message", {"mesg": mesg})
    assert answer.status == 422, answer
    assert "nested" in answer.text or "not JSON" in answer.text
    kind = {"Content_Type": "application/json"}
    at = f"/api/v1/queues/{name}/txn"
    txn = site.ask("POST", at, b"{}", **kind).json["txn"]
    for path in (at, f"{at}/{txn}/messages", f"{at}/{txn}/commit"):
        for body in (
            deep(depth),
            f'{{"key": {deep(depth)}}}',
            f'{{"ids":{deep(depth)}}}',
        ):
            answer = site.ask("POST", path, body.encode(), **kind)
            assert answer.status == 422, (path, answer)
    log = (site.daemon.root.log / "web.log").read_text()
    assert "Traceback" not in log


def test_a_form_of_many_brackets_is_no_500(site):
    name = site.queue("echo done >&3")
    for key in ("mesg" + "[a]" * 300, "mesg" + "[]" * 300, "mesg" + "[" * 300):
        answer = site.post(f"/q/{name}/new_message", {key: "1", "mesg[dest]": name})
        assert answer.status < 500, answer


def test_a_config_file_that_is_nested_too_deep_is_named(tmp_path):
    path = tmp_path / "config.json"
    for depth in (300, 900, 5000):
        path.write_text(f'{{"host": "h", "port": 1, "basic_auth": {deep(depth)}}}')
        with pytest.raises(BadConfig, match=r"nested|not JSON"):
            read_json(path)


def test_what_is_flat_may_be_long_and_what_is_in_strings_does_not_count():
    flat = [{"a": [n]} for n in range(5000)]
    assert nesting.from_json(json.dumps(flat), "it") == flat
    text = {"a": "[" * 5000}
    assert nesting.from_json(json.dumps(text), "it") == text
    with pytest.raises(BadInput, match="it is nested"):
        nesting.from_json(deep(300), "it")
