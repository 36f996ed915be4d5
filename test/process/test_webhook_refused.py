"""A webhook that would be posted nowhere is refused while its sender listens."""

import json

import pytest
from harness.cli import rq
from harness.queues import running_queue

pytestmark = pytest.mark.process

# As addresses may be written that lead to this machine or its network.
INTERNAL = (
    "127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::1]", "localhost",
    "LOCALHOST.", "a.localhost", "10.0.0.7", "169.254.169.254", "[::ffff:10.0.0.7]",
    "[fe80::1]", "0.0.0.0",
)  # fmt: skip


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path / "root", num_workers=0) as queue:
        yield queue


def refused(queue, url, word="create_message", **more):
    return queue.refused(word, {"dest": "t", "post_run_webhook": [url], **more})


@pytest.mark.parametrize("host", INTERNAL)
def test_an_internal_address_is_refused_however_it_is_written(queue, host):
    text = refused(queue, f"http://me:sesame@{host}:8080/T0/secret")
    assert "rq relay allow --webhooks" in text
    assert "config/webhooks.json" in text
    assert "sesame" not in text
    assert "secret" not in text


def test_the_command_of_the_sentence_allows_it(queue):
    url = "http://10.0.0.7:8080/x"
    text = refused(queue, url)
    words = text.partition("`rq ")[2].partition("`")[0].split()
    said = rq(*words, root=queue.root.path)
    assert said.stdout == "10.0.0.7:8080 may be told now by webhooks\n"
    assert "might be told already" in rq(*words, root=queue.root.path).stdout
    assert queue.get(queue.send(post_run_webhook=[url]))["post_run_webhook"] == [url]
    assert "10.0.0.7:81" in refused(queue, "http://10.0.0.7:81/x")


def test_each_way_in_refuses_it_and_none_looks_a_name_up(queue):
    url = "https://127.0.0.1/x"
    assert "127.0.0.1:443" in refused(queue, url, "prep_message")
    row = {"param1": "x", "post_run_webhook": url}
    [many] = queue.ok("create_messages", {"messages": [{"dest": "t", **row}]})
    assert many[0] == "fail"
    txn = queue.ok("open_txn", {})["txn"]
    for word in ("prepare_txn", "add_rows"):
        asked = {"txn": txn, "messages": [row]}
        assert "127.0.0.1:443" in queue.refused(word, asked)
    assert queue.send(post_run_webhook=["https://no.such.name.example/x"])
    assert queue.send(post_run_webhook=["https://8.8.8.8/x"])


def test_what_was_accepted_is_not_refused_when_it_is_sent_again(queue):
    webhooks = queue.root.webhooks
    webhooks.write_text(json.dumps({"allow": ["127.0.0.1"]}))
    told = {"post_run_webhook": ["http://127.0.0.1:9/x"], "_key": "k"}
    first = queue.send(**told)
    webhooks.unlink()
    assert queue.send(**told) == first
    assert "127.0.0.1:9" in refused(queue, "http://127.0.0.1:9/x")


def test_a_timer_s_work_is_done_though_nobody_could_be_told(queue):
    told = {"post_run_webhook": ["http://127.0.0.1:9/x"]}
    assert queue.send(**told, _by="timer:nightly")


def test_a_file_that_cannot_be_used_leaves_what_was_allowed(queue):
    queue.root.webhooks.write_text("{")
    assert "127.0.0.1:9" in refused(queue, "http://127.0.0.1:9/x")
