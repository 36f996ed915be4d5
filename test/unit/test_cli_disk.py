"""What is promised on which file system."""

from pathlib import Path

import pytest

from rq.files.disk import FileSystem, describe


def a_file_system(**facts):
    known = {"kind": "ext4", "has_journal": True, "free_inodes": 5000}
    return FileSystem(path=Path("/x"), free_bytes=10**9, **(known | facts))


@pytest.mark.parametrize(
    "facts",
    [
        {"has_journal": False},
        {"has_journal": None},
        {"kind": "nfs4", "has_journal": None},
        {"kind": "tmpfs", "has_journal": None},
        {"kind": "overlay", "has_journal": None},
        {"kind": "fuse.sshfs", "has_journal": None},
        {"options": ("rw", "nobarrier")},
        {"options": ("rw", "barrier=0")},
    ],
)
def test_where_a_power_cut_may_lose_messages_that_is_said(facts):
    found = a_file_system(**facts)
    assert any(
        one.startswith("power cuts may lose messages: ") for one in found.warnings
    )
    assert "may lose it" in found.promise


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_journaled_local_file_system_gets_the_whole_promise(kind):
    found = a_file_system(kind=kind)
    assert found.warnings == ()
    assert "a power cut" in found.promise


def test_the_room_is_what_runs_out_first():
    assert a_file_system(free_inodes=5000).room_messages == 1000
    assert a_file_system(free_inodes=None).room_messages == 10**9 // 20480


def test_a_directory_limit_of_65000_is_named():
    assert "65,000" in a_file_system(dir_nlink=False).warnings[0]


def test_a_path_that_exists_is_described_without_failing():
    found = describe(Path("/"))
    assert found.kind != "?" or not Path("/proc/self/mountinfo").exists()
