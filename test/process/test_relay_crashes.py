"""kill -9 of either side at each step, old copies and full disks: one message."""

import contextlib
import json
import os
import shutil
import signal

import pytest
from harness.extent import rotated
from harness.relay import STEPS, pair_at
from harness.waiting import wait_until

from rq.errors import RQError

pytestmark = pytest.mark.process

FILES = {"notes.txt": b"hello\n"}


@pytest.fixture
def pair(tmp_path):
    with pair_at(tmp_path) as pair:
        yield pair


def one_message(pair, msg_id):
    ended = pair.relayed(msg_id)
    assert ended["state"] == "relayed", ended
    [got] = pair.received()
    assert set(got["attachments"]) == set(FILES)
    assert ended["result"]["job_status"].endswith(got["msg_id"])
    return got


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_the_sender_may_be_killed_after_each_step(pair, step):
    pair.proxy.once(step, pair.sender.crash)
    msg_id = pair.send(FILES)
    wait_until(lambda: not pair.sender.alive)
    pair.sender.start()
    one_message(pair, msg_id)


@pytest.mark.parametrize("step", rotated(STEPS[::-1]))
def test_the_receiver_may_be_killed_after_each_step(pair, step):
    def crash():
        pair.sink.crash()
        pair.sink.start()  # its web stays: it asks the next owner

    pair.proxy.once(step, crash)
    one_message(pair, pair.send(FILES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "move:before-rename#2",
        "move:after-rename#2",
        "write:before-rename#3",
        "journal:before-write#2",
        "journal:written#2",
        "journal:before-sync#2",
        "journal:after-sync#2",
    ],
)
def test_the_receiver_may_be_killed_inside_a_step(pair, point):
    def arm():
        pair.sink.crash()
        pair.sink.env["RQ_CRASH_AT"] = point
        pair.sink.start()
        pair.sink.env.clear()
        armed.append(point)

    armed = []
    pair.proxy.once("prepare", arm)
    msg_id = pair.send(FILES)
    wait_until(lambda: pair.hurry(msg_id) and armed and not pair.sink.alive, 60)
    pair.sink.start()
    one_message(pair, msg_id)


AT_CLAIM = ("journal:before-write", "journal:after-sync", "move:after-rename")
AT_END = (
    "journal:before-write",
    "journal:written",
    "journal:after-sync",
    "move:before-rename",
    "move:after-rename",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "point"),
    [*(("claim", one) for one in AT_CLAIM), *(("end", one) for one in AT_END)],
)
def test_the_sender_may_be_killed_as_it_claims_or_ends_a_message(pair, when, point):
    paused = pair.sender.root.pause("relay")
    paused.touch()
    pair.sender.ask("wake")
    msg_id = pair.send(FILES)
    pair.sender.check()
    if when == "claim":
        pair.sender.crash_at(point)
    else:
        # After the answer to commit only its end is left to be written.
        pair.proxy.once("commit", lambda: pair.sender.crash_at(point) or "none")
    paused.unlink()
    with contextlib.suppress(RQError):
        pair.sender.ask("wake")
    wait_until(lambda: not pair.sender.alive, 60)
    pair.sender.start()
    one_message(pair, msg_id)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["durable:before-rename", "durable:after-rename"])
@pytest.mark.parametrize("nth", [1, 2])
def test_the_sending_worker_may_be_killed_where_it_writes_down_what_it_knows(
    pair, point, nth
):
    # First it makes relay.id of its root, then it keeps the id of the message there.
    pair.sender.configure(exec_prefix=f"env RQ_CRASH_AT={point}#{nth}")
    pair.sender.ask("wake")
    msg_id = pair.send(FILES)
    ended = pair.sender.until(msg_id, "err", seconds=60)
    assert "SIGKILL" in ended["status"]
    pair.sender.configure(exec_prefix="")
    pair.sender.ask("wake")
    pair.sender.ok("retry_message", {"msg_id": msg_id, "who": "a test"})
    wait_until(lambda: pair.sender.state(msg_id) != "err", 60)
    one_message(pair, msg_id)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_the_sending_worker_may_be_killed_after_each_step(pair, step):
    def kill():
        [msg_id] = os.listdir(pair.sender.dir.path / "run")
        os.kill(pair.sender.get(msg_id)["result"]["pid"], signal.SIGKILL)

    pair.proxy.once(step, kill)
    msg_id = pair.send(FILES)
    pair.sender.until(msg_id, "err", seconds=60)
    pair.sender.ok("retry_message", {"msg_id": msg_id, "who": "a test"})
    one_message(pair, msg_id)


@pytest.mark.slow
def test_a_sender_restored_from_a_backup_hands_nothing_over_twice(pair):
    pair.sender.root.pause("relay").touch()
    pair.sender.ask("wake")
    msg_id = pair.send(FILES)
    assert pair.sender.stop() == 0
    backup = pair.path / "backup"
    shutil.copytree(pair.sender.dir.path, backup, symlinks=True)
    pair.sender.root.pause("relay").unlink()
    pair.sender.start()
    first = one_message(pair, msg_id)
    assert pair.sender.stop() == 0
    shutil.rmtree(pair.sender.dir.path)
    shutil.copytree(backup, pair.sender.dir.path, symlinks=True)
    pair.sender.start()
    assert pair.sender.ok("restored")["ids"] == [msg_id]
    pair.sender.ok("restore", {"as": "copy"})
    wait_until(lambda: pair.sender.ok("restored")["why"] is None)
    assert one_message(pair, msg_id)["msg_id"] == first["msg_id"]


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["acknowledged", "removed"])
def test_what_has_ended_there_is_still_known(pair, lost):
    pair.sink.configure(
        script=str(pair.sink.script_file("#!/bin/sh\necho err x >&3\n"))
    )
    pair.sink.ask("wake")

    def end():
        [got] = pair.received()
        pair.sink.until(got["msg_id"], "err")
        pair.sink.ok("ack_errs")
        if lost == "removed":
            pair.sink.ok("delete_message", {"msg_id": got["msg_id"]})

    pair.proxy.once("commit", end)
    ended = pair.relayed(pair.send(FILES))
    assert ended["state"] == "relayed", ended
    assert len(pair.received()) == (lost == "acknowledged")


@pytest.mark.slow
def test_keys_outlive_a_restart_of_the_receiver_whose_message_is_gone(pair):
    def end():
        [got] = pair.received()
        pair.sink.until(got["msg_id"], "done")
        pair.sink.ok("delete_message", {"msg_id": got["msg_id"]})
        pair.sink.restart()
        pair.sink.crash()
        pair.sink.dir.index.unlink(missing_ok=True)
        pair.sink.start()

    pair.proxy.once("commit", end)
    assert pair.relayed(pair.send(FILES))["state"] == "relayed"
    assert pair.received() == []


@pytest.mark.slow
def test_what_was_begun_before_the_receivers_memory_is_in_doubt_and_not_sent_again(
    pair,
):
    def end():
        [got] = pair.received()
        pair.sink.until(got["msg_id"], "done")
        pair.sink.ok("delete_message", {"msg_id": got["msg_id"]})
        pair.sender.root.pause("relay").touch()
        pair.sender.ask("wake")

    pair.proxy.once("commit", end)
    msg_id = pair.send(FILES)
    wait_until(lambda: pair.sender.root.pause("relay").exists())
    pair.sender.until(msg_id, "que")
    path = pair.sender.folder(msg_id) / "job/relay.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "since": kept["since"] - 30 * 86400}))
    pair.sender.root.pause("relay").unlink()
    ended = pair.relayed(msg_id)
    assert ended["status"].startswith("err - in doubt"), ended
    assert pair.received() == []


@pytest.mark.slow
def test_a_full_disk_there_lets_the_message_wait_and_loses_nothing(pair):
    roomy = json.loads(pair.sink.root.config.read_text())
    pair.sink.root.config.write_text(json.dumps({**roomy, "min_free_bytes": 2**60}))
    pair.sink.restart()
    msg_id = pair.send(FILES)
    waiting = pair.until_told(msg_id, "not accepted")
    assert (waiting["state"], waiting["count"]) == ("que", 0)
    assert pair.received() == []
    pair.sink.root.config.write_text(json.dumps(roomy))
    pair.sink.restart()
    one_message(pair, msg_id)
