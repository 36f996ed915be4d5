"""Control groups, as files: where RQ finds its own, and what it writes."""

import os

import pytest

from rq.message.limits import Limits
from rq.proc import cgroups

SOME = Limits(memory=2**28, processes=20)


def machine(tmp_path, own="/rq.service/rq", controllers="cpu memory pids", mark=b"1"):
    """Lay out what the kernel would show of a process in group `own`."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(f"4:memory:/x\n0::{own}\n")
    (proc / "self/mounts").write_text(
        f"tmpfs /tmp tmpfs rw\ncgroup2 {mount} cgroup2 rw\n"
    )
    base = mount / "rq.service"
    (base / "rq").mkdir(parents=True)
    (base / "cgroup.controllers").write_text(f"{controllers}\n")
    (base / "cgroup.subtree_control").touch()
    if mark:
        try:
            os.setxattr(base, "user.delegate", mark)
        except OSError:
            pytest.skip("no user attributes here -> a file system that has some")
    return proc, base


def test_a_group_that_systemd_delegates_is_used(tmp_path):
    proc, base = machine(tmp_path)
    assert cgroups.delegated(proc=proc) == base


@pytest.mark.parametrize(
    "other",
    [
        {"own": "/"},
        {"own": "/elsewhere/rq"},
        {"controllers": "memory"},
        {"mark": b"0"},
        {"mark": b""},
    ],
)
def test_any_other_group_is_left_alone(tmp_path, other):
    """Root could write into every one."""
    proc, _ = machine(tmp_path, **other)
    assert cgroups.delegated(proc=proc) is None


def test_nothing_is_found_where_nothing_is_told(tmp_path):
    assert cgroups.delegated(proc=tmp_path) is None


def test_a_script_gets_a_group_with_its_limits(tmp_path):
    group = cgroups.hold(4711, SOME, tmp_path)
    [place] = tmp_path.iterdir()
    assert (place / "memory.max").read_text() == str(2**28)
    assert (place / "pids.max").read_text() == "20"
    assert (place / "cgroup.procs").read_text() == "4711"
    assert group.oom_kills == 0
    (place / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert group.oom_kills == 2
    assert cgroups.hold(4711, Limits(timeout=5.0), tmp_path) is None


def test_where_no_group_can_be_made_there_is_none(tmp_path):
    assert cgroups.hold(4711, SOME, tmp_path / "nowhere") is None
