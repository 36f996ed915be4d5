"""`rq up` on a full disk says that the disk is full, whatever fails first."""

import os

import pytest
from harness.cli import rq, run
from harness.ports import free_port
from harness.small_disk import small_disk

MIB = 1024 * 1024


@pytest.fixture
def small(tmp_path):
    """Give a root on a disk of 24 MiB of its own."""
    disk = tmp_path / "small"
    with small_disk(disk, "24m", part="faults"):
        root = disk / "root"
        root.mkdir()
        try:
            yield root
        finally:
            rq("down", root=root)


def fill(root, left):
    """Leave so many bytes on the disk of a root."""
    room = os.statvfs(root)
    size = room.f_bavail * room.f_frsize - left
    with open(root.parent / "fill", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def install(root):
    assert run("rq.cli.install", "--port", free_port(), root=root).returncode == 0


@pytest.mark.slow
def test_a_disk_with_less_than_is_kept_is_told_and_no_success(small):
    install(small)
    done = rq("up", "--no-samples", root=small)
    assert done.returncode == 1, done.stdout
    assert "take no messages: the disk is full: " in done.stderr
    assert "free some, or lower min_free_bytes" in done.stderr
    assert rq("status", root=small).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 600 * 1024])
def test_a_start_that_fails_for_want_of_room_says_so(small, left):
    install(small)
    fill(small, left)
    done = rq("up", "--no-samples", root=small)
    assert done.returncode == 1
    assert f"the disk of {small} is full (" in done.stderr
    assert "free some, then try again" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fresh_root_on_a_full_disk_is_one_sentence(small):
    fill(small, 0)
    done = rq("up", "--no-samples", root=small)
    assert done.returncode == 4
    assert done.stderr.startswith(f"rq: the disk of {small} is full (")
    assert done.stderr.count("\n") == 1
