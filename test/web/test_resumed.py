"""Uploads in pieces: hashed as they come, given to the owner as they are, gone on with."""

import hashlib
import os
from pathlib import Path

import pytest
from support import RunningQueue
from webbing import web_alone

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
    with web_alone(tmp_path) as web:
        queue = RunningQueue(tmp_path, "t", "#!/bin/sh\necho done >&3\n")
        try:
            queue.start()
            yield Site(web, queue)
            queue.close()
        finally:
            queue.kill()


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
