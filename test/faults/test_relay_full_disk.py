"""A receiver whose disk fills in the middle of an upload: refused, gone on with, once."""

import os

import pytest
from harness.relay import pair_at
from harness.small_disk import small_disk
from harness.waiting import wait_until

pytestmark = pytest.mark.process

MIB = 1024 * 1024
FILES = {"large.bin": os.urandom(MIB) * 16, "notes.txt": b"hello\n"}


@pytest.fixture
def full_there(tmp_path):
    """Give a pair whose receiver has a disk of 48 MiB of its own."""
    disk = tmp_path / "receiver"
    with small_disk(disk, "48m", part="faults"), pair_at(tmp_path) as pair:
        yield pair


def fill(pair, left):
    """Leave so many MiB on the receiver's disk; return what fills it."""
    disk = pair.path / "receiver"
    room = os.statvfs(disk)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - left * MIB))
    return ballast


def relayed_or_refused(pair, msg_id):
    """Return the message when it was handed over, or the sender was told in whichever
    step that there is no room."""
    pair.hurry(msg_id)
    found = pair.sender.get(msg_id)
    told = "no room" in found["status"] or "No space" in found["status"]
    return found if told or found["state"] == "relayed" else None


# Of one file of 16 MiB: no byte, a part, and the whole of it but not twice.
@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 6, 17])
def test_an_upload_that_finds_no_room_goes_on_when_there_is(full_there, left):
    pair = full_there
    ballast = fill(pair, left + 3 if left else 0)
    msg_id = pair.send(FILES)
    tried = wait_until(lambda: relayed_or_refused(pair, msg_id), 30)
    assert tried["count"] == 0
    ballast.unlink()
    ended = pair.relayed(msg_id, 30)
    assert ended["state"] == "relayed", ended
    [got] = pair.received()
    is_whole(got, ended)


@pytest.mark.slow
def test_an_upload_from_another_disk_that_finds_no_room_waits_too(full_there):
    pair = full_there
    elsewhere = pair.path / "elsewhere"
    elsewhere.mkdir()
    pair.sink.root.uploads.rmdir()
    pair.sink.root.uploads.symlink_to(elsewhere)
    ballast = fill(pair, 9)
    msg_id = pair.send(FILES)
    tried = wait_until(lambda: relayed_or_refused(pair, msg_id), 30)
    assert tried["state"] in ("que", "run"), tried
    ballast.unlink()
    ended = pair.relayed(msg_id, 30)
    assert ended["state"] == "relayed", ended
    [got] = pair.received()
    is_whole(got, ended)
    assert list(elsewhere.iterdir()) == []


def is_whole(got, ended):
    sent = {name: one["sha256"] for name, one in ended["attachments"].items()}
    assert {n: one["sha256"] for n, one in got["attachments"].items()} == sent
