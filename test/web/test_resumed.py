"""Uploads in pieces: hashed as they come, given to the owner as they are, gone on with."""

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from harness.queues import running_queue
from harness.web_server import web_alone

from rq.errors import Refused
from rq.web.intake import Intake
from rq.web.unfinished_uploads import (
    MOST,
    MOST_BYTES,
    SHARES,
    SUFFIX,
    UnfinishedUploads,
    name_of,
)

pytestmark = pytest.mark.system

DATA = os.urandom(3_000_001)
ATTACHED = ["ok", f"{hashlib.md5(DATA).hexdigest()}-Attached successfully"]


class Site:
    """A web, a queue, and a message in prep."""

    def __init__(self, web, queue):
        self.web = web
        self.queue = queue
        self.uploads = queue.root.uploads
        self.msg_id = web.send("t", _method="prep")

    def put(self, data, start=0):
        """Send a piece; with no data, ask how many bytes have come."""
        asked = f"{start}-{len(DATA) - 1}" if data else "*"
        headers = {
            "Content_Range": f"bytes {asked}/{len(DATA)}",
            "X_RQ_SHA256": hashlib.sha256(DATA).hexdigest(),
        }
        path = f"/q/t/{self.msg_id}/attach/a.bin"
        return self.web.ask("PUT", path, data, **headers).json

    def file(self):
        """Return the attached file."""
        found = self.queue.get(self.msg_id)["_attachments"]["a.bin"]
        assert found["sha256"] == hashlib.sha256(DATA).hexdigest()
        return Path(found["path"])

    def part(self):
        [path] = self.uploads.iterdir()
        return path


@pytest.fixture
def site(tmp_path):
    script = "#!/bin/sh\necho done >&3\n"
    with web_alone(tmp_path) as web, running_queue(tmp_path, script) as queue:
        yield Site(web, queue)


@pytest.mark.slow
def test_a_file_is_attached_as_it_came_and_not_copied(site):
    half = len(DATA) // 2
    assert "go on from there" in site.put(DATA[:half])[1]
    assert site.put(b"") == ["ok", half]
    came = site.part().stat().st_ino
    assert site.put(DATA[half:], half) == ATTACHED
    assert site.file().read_bytes() == DATA
    assert site.file().stat().st_ino == came
    assert site.file().stat().st_mode & 0o777 == 0o440
    assert list(site.uploads.iterdir()) == []
    assert site.put(b"") == ATTACHED
    site.queue.ok("commit_message", {"msg_id": site.msg_id})
    assert site.queue.ended(site.msg_id)["state"] == "done"


def test_a_sender_may_go_back_to_an_earlier_byte(site):
    half = len(DATA) // 2
    site.put(b"x" * half)
    assert site.put(DATA) == ATTACHED
    assert site.file().read_bytes() == DATA


def test_a_piece_beyond_what_has_come_is_refused_with_what_has(site):
    site.put(DATA[:1000])
    assert site.put(DATA[2000:], 2000) == [
        "fail",
        "message has 1000 bytes of it: go on from there",
    ]


def test_what_is_not_what_its_digest_says_is_forgotten(site):
    wrong = bytes(len(DATA))
    assert site.put(wrong) == [
        "fail",
        "attachment a.bin is not whole; attach it again",
    ]
    assert list(site.uploads.iterdir()) == []
    assert "_attachments" not in site.queue.get(site.msg_id)
    assert site.put(DATA) == ATTACHED


def test_pieces_that_were_attached_before_a_crash_of_the_web_are_not_written_again(
    site,
):
    site.put(DATA[:1000])
    kept = site.uploads.parent / "attached"
    os.link(site.part(), kept)
    assert site.put(DATA[1000:], 1000) == [
        "fail",
        "message has 0 bytes of it: go on from there",
    ]
    assert site.put(DATA) == ATTACHED
    assert kept.read_bytes() == DATA[:1000]


@pytest.mark.slow
def test_a_file_is_copied_from_another_file_system(site, tmp_path):
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no other file system -> mount a tmpfs at /dev/shm")
    there = elsewhere / f"rq-test-{os.getpid()}"
    there.mkdir()
    try:
        site.uploads.rmdir()
        site.uploads.symlink_to(there)
        assert site.put(DATA) == ATTACHED
        assert site.file().read_bytes() == DATA
        path = f"/q/t/{site.msg_id}/attach/new"
        fields, files = {"x_format": "json"}, {"filedata": ("b.bin", DATA)}
        assert site.web.multipart(path, fields, files).json == ATTACHED
        assert site.put(b"") == ATTACHED
        assert list(there.iterdir()) == []
    finally:
        for one in there.iterdir():
            one.unlink()
        there.rmdir()


@pytest.mark.slow
def test_no_more_bytes_are_taken_than_were_announced(site):
    answer = site.put(DATA + b"more")
    assert answer["status"] == 422
    assert "4 bytes more came than were announced" in answer["detail"]
    assert all(one.stat().st_size <= len(DATA) for one in site.uploads.iterdir())
    assert site.put(DATA) == ATTACHED


@pytest.mark.slow
def test_a_size_that_the_disk_has_no_room_for_is_refused_at_its_first_byte(site):
    headers = {
        "Content_Range": f"bytes 0-9/{10**17}",
        "X_RQ_SHA256": hashlib.sha256(DATA).hexdigest(),
    }
    path = f"/q/t/{site.msg_id}/attach/a.bin"
    answer = site.web.ask("PUT", path, b"0123456789", **headers)
    assert answer.status == 503
    assert "no room on the disk" in answer.json["detail"]


@pytest.fixture
def parts(tmp_path):
    return UnfinishedUploads(tmp_path)


def write_part(parts, name, size=1, age=0.0):
    """Begin an upload, as old as is wanted."""
    path = parts.admit(name + SUFFIX, size)
    path.write_bytes(b"x")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_of_too_many_uploads_the_one_that_was_abandoned_longest_goes(
    parts, tmp_path, monkeypatch
):
    monkeypatch.setattr("rq.web.unfinished_uploads.MOST", 3)
    monkeypatch.setattr("rq.web.unfinished_uploads.SHARES", 1)
    for number, age in enumerate((5000.0, 9000.0, 0.0)):
        write_part(parts, str(number), age=age)
    parts = UnfinishedUploads(tmp_path)  # as after a start of the web
    write_part(parts, "new")
    assert sorted(os.listdir(tmp_path)) == ["0.part", "2.part", "new.part"]


def test_no_upload_that_goes_on_has_to_give_way(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("rq.web.unfinished_uploads.MOST", 3)
    monkeypatch.setattr("rq.web.unfinished_uploads.SHARES", 1)
    for number in range(3):
        write_part(parts, str(number))
    with pytest.raises(Refused, match="3 uploads are unfinished"):
        parts.admit("new.part", 1)
    assert len(os.listdir(tmp_path)) == 3
    assert parts.admit("1.part", 1).exists()


def test_a_quota_of_bytes_lets_the_largest_through_that_is_alone(parts, tmp_path):
    write_part(parts, "huge", size=10 * MOST_BYTES, age=0.0)
    with pytest.raises(Refused, match="1 of them yours"):
        parts.admit("second.part", 1)
    parts.forget("huge.part")
    assert parts.admit("second.part", 1)


def test_what_one_sender_announces_keeps_no_other_sender_out(parts, tmp_path):
    parts.admit(name_of("huge", "greedy"), 10**18)
    for number in range(MOST // SHARES):
        path = parts.admit(name_of(str(number), "many"), 1)
        path.write_bytes(b"x")
    with pytest.raises(Refused, match=f"{MOST // SHARES} of them yours"):
        parts.admit(name_of("one more", "many"), 1)
    assert parts.admit(name_of("small", "modest"), 1)
    seen_by_another_process = UnfinishedUploads(tmp_path)
    with pytest.raises(Refused, match="yours"):
        seen_by_another_process.admit(name_of("one more", "many"), 1)


@pytest.mark.slow
def test_a_file_that_has_no_room_is_not_counted_as_begun(site):
    asked = {"X_RQ_SHA256": "0" * 64, "Content_Range": f"bytes 0-9/{10**17}"}
    path = f"/q/t/{site.msg_id}/attach/huge.bin"
    assert site.web.ask("PUT", path, b"0123456789", **asked).status == 503
    assert list(site.uploads.iterdir()) == []
    assert site.put(DATA) == ATTACHED


def test_whoever_closes_a_file_waits_for_no_thread_that_writes_it():
    """As when a client goes away while its disk stands still: the loop closes the file."""
    reader, writer = os.pipe()
    intake = Intake(writer)
    writing = threading.Thread(target=intake.write, args=([bytes(1_000_000)],))
    writing.start()
    os.read(reader, 1)  # it is at work, and stands still
    closing = threading.Thread(target=intake.close)
    closing.start()
    closing.join(60)
    stood_still = closing.is_alive()
    with open(reader, "rb") as file:
        assert len(file.read()) == 999_999  # and then it is closed, or this waits
    writing.join()
    closing.join()
    assert not stood_still


def test_a_piece_costs_no_look_at_the_directory(parts, tmp_path):
    write_part(parts, "one")
    (tmp_path / "by-hand.part").write_bytes(b"x")
    parts.admit("one.part", 1)
    assert "by-hand.part" not in parts._uploads
