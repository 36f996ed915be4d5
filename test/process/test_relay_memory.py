"""What is forgotten after a time, here and there, and what is kept: days pass in files."""

import json
import os
import time
import zlib

import pytest
from harness.queues import short
from harness.relay import pair_at
from harness.waiting import wait_until

from rq import cli

pytestmark = pytest.mark.process

FILES = {"notes.txt": b"hello\n"}
DAY = 86400.0


@pytest.fixture
def pair(tmp_path):
    with pair_at(tmp_path) as pair:
        yield pair


def hold(pair):
    pair.sender.root.pause("relay").touch()
    pair.sender.ask("wake")


def go_on(pair):
    pair.sender.root.pause("relay").unlink()
    pair.sender.ask("wake")


def end_and_remove(pair):
    """Let the message that has arrived end, and remove it."""
    [got] = pair.received()
    pair.sink.until(got["msg_id"], "done")
    pair.sink.ok("delete_message", {"msg_id": got["msg_id"]})


def send_without_hearing_of_its_commit(pair):
    """Return a message that waits here, was committed there, and has gone there."""

    def end():
        end_and_remove(pair)
        hold(pair)

    pair.proxy.once("commit", end)
    msg_id = pair.send(FILES)
    wait_until(lambda: pair.sender.root.pause("relay").exists(), 60)
    pair.sender.until(msg_id, "que", seconds=60)
    return msg_id


def age_here(pair, msg_id, days):
    """Let the sender have begun so many days ago."""
    path = pair.sender.folder(msg_id) / "job/relay.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "since": kept["since"] - days * DAY}))


def age_there(pair, days):
    """Let the receiver have learned its keys so many days ago."""
    assert pair.sink.stop() == 0
    lines = [json.loads(one) for one in pair.sink.dir.index.read_text().splitlines()]
    [keys] = [one["keys"] for one in lines if "keys" in one]
    assert keys
    for known in keys.values():
        known[1] -= days * DAY
    text = "".join(json.dumps(one) + "\n" for one in lines[:-1])
    end = json.dumps({"end": zlib.crc32(text.encode())})
    pair.sink.dir.index.write_text(f"{text}{end}\n")
    pair.sink.env["TEST_HOUR"] = "0.4"
    pair.sink.start()


def known_keys(pair):
    """Return the keys that the receiver knows when it stops."""
    assert pair.sink.stop() == 0
    lines = [json.loads(one) for one in pair.sink.dir.index.read_text().splitlines()]
    pair.sink.start()
    return {key: is_ for one in lines for key, is_ in one.get("keys", {}).items()}


def listed(pair, capfd):
    pair.sender.ok("check")
    capfd.readouterr()
    root = ["--root", str(pair.sender.root.path)]
    assert cli.main([*root, "relay", "ls", "--json"]) == 0
    return {one["msg_id"]: one for one in json.loads(capfd.readouterr().out)}


def until_an_hour_passed(pair):
    """Wait until the receiver has done what it does each hour: here it removes what is
    done."""
    pair.sink.configure(retention={"done": {"days": 0}})
    pair.sink.ask("wake")
    mark = short(pair.sink.send(param1="mark"))
    asked = {"msg_id": mark}  # which may be gone as soon as it is done
    wait_until(
        lambda: pair.sink.ask("get_message_state", asked)[0] == "fail", seconds=60
    )


def test_a_key_is_known_for_thirty_days_whatever_became_of_its_message(pair):
    msg_id = send_without_hearing_of_its_commit(pair)
    age_there(pair, 29.9)
    until_an_hour_passed(pair)
    go_on(pair)
    ended = pair.relayed(msg_id, 60)
    assert ended["state"] == "relayed", ended
    assert pair.received() == []


@pytest.mark.slow
def test_what_is_older_than_the_receivers_memory_is_in_doubt_and_listed(pair, capfd):
    msg_id = send_without_hearing_of_its_commit(pair)
    age_there(pair, 30.1)
    until_an_hour_passed(pair)
    assert known_keys(pair) == {}
    age_here(pair, msg_id, 30.1)
    go_on(pair)
    ended = pair.relayed(msg_id, 60)
    assert ended["status"].startswith("err - in doubt"), ended
    assert pair.received() == []
    one = listed(pair, capfd)[msg_id]
    assert (one["in_doubt"], one["step"]) == (True, "ask")
    assert one["peer"] == f"http://127.0.0.1:{pair.proxy.own_port}"


def test_a_message_is_given_up_after_seven_days_and_listed(pair, capfd):
    pair.proxy.is_down = True
    msg_id = pair.send(FILES)
    wait_until(lambda: pair.sender.get(msg_id)["attempt"] > 0, 60)
    hold(pair)
    pair.sender.until(msg_id, "que", seconds=60)
    age_here(pair, msg_id, 6.9)
    go_on(pair)
    before = pair.sender.get(msg_id)["attempt"]
    wait_until(
        lambda: pair.hurry(msg_id) and pair.sender.get(msg_id)["attempt"] > before, 30
    )
    hold(pair)
    pair.sender.until(msg_id, "que", seconds=60)
    age_here(pair, msg_id, 0.2)
    go_on(pair)
    ended = pair.relayed(msg_id, 60)
    assert ended["status"].startswith("err - gave up after 7 days: "), ended
    assert not listed(pair, capfd)[msg_id]["in_doubt"]
    pair.proxy.is_down = False
    pair.sender.ok("retry_message", {"msg_id": msg_id, "who": "a test"})
    again = pair.relayed(msg_id, 60)
    assert again["state"] == "relayed", again


def test_pieces_that_nobody_went_on_with_are_swept_and_fresh_ones_stay(pair):
    uploads = pair.sink.root.uploads
    old, fresh = uploads / "old.part", uploads / "fresh.part"
    for one in (old, fresh):
        one.write_bytes(b"half")
    long_ago = time.time() - 37 * 3600
    os.utime(old, (long_ago, long_ago))
    assert pair.relayed(pair.send(FILES))["state"] == "relayed"
    assert list(uploads.iterdir()) == [fresh]


@pytest.mark.slow
def test_what_a_crash_left_of_an_upload_goes_when_its_message_is_committed(pair):
    left = []

    def crash():
        [prep] = (pair.sink.dir.path / "prep").iterdir()
        left.append(prep / "attach/.up-1-1")
        left[0].write_bytes(b"half")
        pair.sink.crash()
        pair.sink.start()

    pair.proxy.once("attach", crash)
    assert pair.relayed(pair.send(FILES), 60)["state"] == "relayed"
    [got] = pair.received()
    folder = pair.sink.folder(got["msg_id"])
    assert [one.name for one in (folder / "attach").iterdir()] == [*FILES]
    assert left
