"""Ends that an agent could not hand in, as the next one finds them."""

import contextlib
import os
from pathlib import Path

import pytest

from rq.work import notes
from rq.work.notes import Note
from rq.work.place import Place

NOBODY = 65534


@pytest.fixture
def place(tmp_path, monkeypatch):
    here = tmp_path / "agent"
    here.mkdir()
    monkeypatch.chdir(here)  # another user does not come here by its whole path
    here.chmod(0o755)
    os.mkdir("msg")
    fd = os.open("msg", os.O_RDONLY | os.O_DIRECTORY)
    yield Place(Path(), -1, fd)
    os.close(fd)


def kept(place, name):
    (place.messages / name).mkdir()
    for path in (place.messages, place.messages / name):
        if os.getuid() == 0:
            os.chown(path, NOBODY, -1)
    finish = {"token": f"{name}~1~{'a' * 32}", "word": "done"}
    note = Note(folder=name, finish=finish, log_from=3, log_to=9, log_sent=4)
    notes.write(place, note)
    return note


@contextlib.contextmanager
def unreadable(path):
    """Let a file be closed to us while the block runs, not its directory."""
    path.chmod(0)
    os.seteuid(NOBODY if os.getuid() == 0 else os.getuid())
    try:
        yield
    finally:
        os.seteuid(os.getuid())


def test_a_note_that_cannot_be_read_now_is_kept(place):
    first, second = kept(place, "1"), kept(place, "2")
    taken = notes.take_all(place)
    assert next(taken) == first
    with unreadable(place.messages / "2" / notes.NOTE):
        assert list(taken) == []
    (place.messages / "2" / notes.NOTE).chmod(0o600)
    assert list(notes.take_all(place)) == [first, second]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"finish": {}}', b"\xff", b"fifo", b"link"]
)
def test_what_is_no_note_is_removed(place, content):
    note = kept(place, "1")
    path = place.messages / "2" / notes.NOTE
    path.parent.mkdir()
    if content == b"fifo":
        os.mkfifo(path)
    elif content == b"link":
        path.symlink_to("/etc/passwd")
    else:
        path.write_bytes(content)
    (place.messages / "3").mkdir()
    assert list(notes.take_all(place)) == [note]
    assert os.listdir(place.messages) == ["1"]
