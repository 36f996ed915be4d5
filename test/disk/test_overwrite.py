"""Files that get another content where they are: only those that nobody else writes to."""

import os

import pytest

from rq.files import durable


@pytest.fixture
def place(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    durable.write_new("f", b"a long content", fd)
    yield fd
    os.close(fd)


def test_the_same_file_gets_another_content(place, tmp_path):
    inode = (tmp_path / "f").stat().st_ino
    for said in (b"short", b"much longer than it was before"):
        durable.overwrite("f", said, place)
        assert (tmp_path / "f").read_bytes() == said
    assert (tmp_path / "f").stat().st_ino == inode


def test_a_file_with_a_second_name_is_left_as_it_is(place, tmp_path):
    os.link(tmp_path / "f", tmp_path / "other")
    durable.overwrite("f", b"new", place)
    assert (tmp_path / "f").read_bytes() == b"new"
    assert (tmp_path / "other").read_bytes() == b"a long content"


def test_a_link_is_not_followed(place, tmp_path):
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to("target")
    durable.overwrite("link", b"new", place)
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert (tmp_path / "link").read_bytes() == b"new"


def test_a_file_that_others_may_write_to_is_made_anew(place, tmp_path):
    old = tmp_path / "f"
    old.chmod(0o666)
    with old.open("r+b") as held:
        durable.overwrite("f", b"new", place)
        assert held.read() == b"a long content"
    assert old.read_bytes() == b"new"
    assert old.stat().st_mode & 0o7777 & ~durable.FILE_MODE == 0


def test_a_missing_file_is_made(place, tmp_path):
    durable.overwrite("none", b"new", place)
    assert (tmp_path / "none").read_bytes() == b"new"
