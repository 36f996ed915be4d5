"""A message is handed over once, whatever becomes of requests, replies and processes."""

import json

import pytest
from harness.relay import DELAYS, FAULTS, STEPS, pair_at
from harness.waiting import wait_until

from rq.relay import host_back_off

pytestmark = pytest.mark.process

FILES = {"picture.jpg": b"\x89cat" * 50_000, "notes.txt": b"hello\n"}


@pytest.fixture
def pair(tmp_path):
    with pair_at(tmp_path) as pair:
        yield pair


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with pair_at(tmp_path_factory.mktemp("shared")) as pair:
        yield pair


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """Give a pair whose sender waits a second for an answer, and no longer."""
    with pair_at(tmp_path_factory.mktemp("hasty")) as pair:
        peer = f"http://127.0.0.1:{pair.proxy.own_port}"
        settings = {"peers": {peer: {"timeout": 1}}}
        pair.sender.root.peers.write_text(json.dumps(settings))
        yield pair


@pytest.mark.slow
def test_a_lost_reply_to_commit_makes_one_message(pair):
    pair.proxy.once("commit", "drop reply")
    msg_id = pair.send(FILES, param1="x")
    ended = pair.relayed(msg_id)
    assert ended["state"] == "relayed", ended
    [got] = pair.received()
    assert got["param1"] == "x"
    sent = {name: one["sha256"] for name, one in ended["attachments"].items()}
    assert {n: one["sha256"] for n, one in got["attachments"].items()} == sent
    assert pair.proxy.seen.count("commit") == 1
    assert ended["result"]["job_status"].endswith(got["msg_id"])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_step_makes_one_message(shared, step, fault):
    before = len(shared.received())
    shared.proxy.once(step, fault)
    ended = shared.relayed(shared.send(FILES))
    assert ended["state"] == "relayed", ended
    [got] = shared.received()[before:]
    assert set(got["attachments"]) == set(FILES)


@pytest.mark.slow
@pytest.mark.parametrize("fault", DELAYS)
@pytest.mark.parametrize("step", STEPS)
def test_what_comes_later_than_the_sender_waits_makes_one_message(hasty, step, fault):
    pair, before = hasty, len(hasty.received())
    pair.proxy.all_done.clear()
    pair.proxy.late.clear()
    pair.proxy.once(step, fault)
    ended = pair.relayed(pair.send(FILES, param1=f"{step} {fault}"), 60)
    assert ended["state"] == "relayed", ended
    pair.proxy.all_done.set()
    wait_until(lambda: pair.proxy.late, 60)
    got = pair.received()[before:]
    assert [one["param1"] for one in got] == [f"{step} {fault}"]
    assert set(got[0]["attachments"]) == set(FILES)
    assert ended["result"]["job_status"].endswith(got[0]["msg_id"])
    prepared = wait_until(lambda: pair.sink.ask("num_messages"))["prep"]
    assert prepared == 0


@pytest.mark.slow
def test_an_upload_goes_on_where_it_was_cut(pair):
    data = {"large.bin": bytes(range(256)) * 40_000}
    pair.proxy.once("attach", "cut request")
    ended = pair.relayed(pair.send(data))
    assert ended["state"] == "relayed", ended
    [got] = pair.received()
    assert (
        got["attachments"]["large.bin"]["sha256"]
        == (ended["attachments"]["large.bin"]["sha256"])
    )
    # It may ask more than once: the receiver has first to hear of the cut.
    first, *asked, second = pair.proxy.bodies("attach")
    assert first == len(data["large.bin"])
    assert (set(asked), second <= first // 2) == ({0}, True)
    assert list(pair.sink.root.uploads.iterdir()) == []


def rest_after_a_try(pair):
    """Send a message; return its id when it was tried once and waits, its folder too."""
    pause = pair.sender.root.pause("relay")
    pair.proxy.once("prepare", pause.touch)
    msg_id = pair.send(FILES)
    wait_until(pause.exists, 60)
    pair.sender.until(msg_id, "que")
    return msg_id


def go_on(pair):
    pair.sender.root.pause("relay").unlink()
    pair.sender.ask("wake")


@pytest.mark.slow
def test_an_attachment_that_was_changed_here_is_not_sent_on(pair):
    msg_id = rest_after_a_try(pair)
    file = pair.sender.folder(msg_id) / "attach/notes.txt"
    file.chmod(0o640)
    file.write_bytes(b"hallo\n")
    go_on(pair)
    ended = pair.relayed(msg_id)
    assert ended["state"] == "err"
    assert "notes.txt has changed since it was attached" in ended["status"]
    assert pair.received() == []


@pytest.mark.slow
def test_an_attachment_that_is_gone_here_is_not_held_against_the_host(pair):
    msg_id = rest_after_a_try(pair)
    (pair.sender.folder(msg_id) / "attach/notes.txt").unlink()
    go_on(pair)
    ended = pair.relayed(msg_id)
    assert ended["state"] == "err"
    assert "attachment notes.txt cannot be read: No such file" in ended["status"]
    assert host_back_off.ls(pair.sender.dir, 0.0) == []
    assert pair.received() == []
    pair.remove(msg_id)  # else `check` tells of the file
