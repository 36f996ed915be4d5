"""Since when a queue is ours: what cannot be told makes nothing old."""

import json
import os

import pytest
from harness.limits import no_descriptors
from harness.spool import Owner

from rq.config import adopted
from rq.config.settings import RootConfig
from rq.layout import STATE_DIRS, Root
from rq.outbound import peers
from rq.spool import adoption, restored

LONG_AGO, ADOPTED = 1425204000.0, 1_800_000_000.0


@pytest.fixture
def queue(tmp_path):
    queue = Owner(tmp_path / "root").queue
    for name in ("prep", "done", "relayed", "err"):
        (queue.path / name).mkdir(exist_ok=True)
    (queue.path / "prep/20150301.1000.00.001.412").mkdir(parents=True)
    adoption.note(queue, ADOPTED)
    return queue


def test_what_cannot_be_read_now_is_not_taken_for_a_queue_that_was_always_ours(queue):
    assert adoption.at(queue) == ADOPTED
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        adoption.at(queue)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"at": null}'])
def test_a_file_that_is_not_whole_makes_nothing_old(queue, text):
    queue.adopted.write_text(text)
    os.utime(queue.adopted, (LONG_AGO, ADOPTED))
    assert adoption.at(queue) == ADOPTED


def test_a_queue_that_nothing_lay_in_was_always_ours(tmp_path):
    queue = Owner(tmp_path / "root").queue
    for name in ("prep", "done", "relayed", "err"):
        (queue.path / name).mkdir(exist_ok=True)
    adoption.note(queue, ADOPTED)
    assert adoption.at(queue) == 0.0


def laid_out(root, name, *, made_by_rq):
    """Make a queue as the ancestor did, or as RQ does."""
    queue = root.queue(name)
    for state in STATE_DIRS:
        (queue.path / state).mkdir(parents=True)
    script = root.path / "own" / "run"
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/usr/bin/env ruby\n")
    queue.config.write_text(json.dumps({"name": name, "script": str(script)}))
    if made_by_rq:
        queue.scandir_mark.write_text("{}")
    return queue


def test_a_root_in_which_rq_made_a_queue_is_no_root_of_the_ancestor(tmp_path):
    root = Root(tmp_path)
    laid_out(root, "mail", made_by_rq=False)
    assert adoption.is_ancestors(root)
    laid_out(root, "pdf", made_by_rq=True)
    assert not adoption.is_ancestors(root)


def test_a_queue_that_rq_made_runs_whatever_its_name_and_its_script_are(tmp_path):
    root = Root(tmp_path)
    assert restored.why_not_taken_over(laid_out(root, "relay", made_by_rq=False))
    made = laid_out(root, "cleaner", made_by_rq=True)
    assert restored.why_not_taken_over(made) is None
    root.config_dir.mkdir()
    adopted.note(
        root, ADOPTED
    )  # scandir may have marked what the ancestor's link declares
    assert restored.why_not_taken_over(made)


def test_a_script_that_cannot_be_read_ends_no_start(tmp_path):
    root = Root(tmp_path)
    queue = laid_out(root, "cleaner", made_by_rq=False)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "round").symlink_to("round")
    for script in ("./fifo", "./round", "./a\0b", "./" + 5000 * "x", "", "."):
        queue.config.write_text(json.dumps({"name": "cleaner", "script": script}))
        assert restored.advice(queue) is None, script


def test_a_timer_whose_name_is_no_utf_8_is_none(tmp_path):
    root = Root(tmp_path)
    for path in (root.timers, root.config_dir):
        path.mkdir()
    for name in (b"daily.json", b"caf\xe9.json", b"old.yaml"):
        (root.timers / os.fsdecode(name)).write_text("{}")
    adopted.note(root, ADOPTED)
    assert adopted.names(root) == ["daily", "old"]


def test_no_webhook_of_the_past_lets_in_the_web_of_the_root_itself(tmp_path):
    own = RootConfig(host="rq.example", port=3333)
    for host in ("127.0.0.1", "127.0.0.9", "[::1]", "localhost.", "RQ.example"):
        to = peers.origin(f"http://{host}:3333/api/v1/queues/cleaner/messages")
        assert peers.is_web_of(to, own), host
    for place in ("127.0.0.1:3334", "192.0.2.7:3333", "rq.example.org:3333"):
        assert not peers.is_web_of(peers.origin(f"http://{place}/q/x"), own), place
