"""Processes and users: whether one lives, ending it, acting as somebody else."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

only_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root can be other users -> sudo ./test/run_tests.sh",
)


@contextlib.contextmanager
def acting_as(uid: int, gid: int, groups: Sequence[int] = ()) -> Iterator[None]:
    """Let what is connected and opened while the block runs be another user's."""
    old = os.getgroups()
    os.setgroups(list(groups))
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(old)


def open_to_others(path: Path) -> None:
    """Let other users pass through the directories that lead to a test's own."""
    for place in (path, *list(path.parents)[:3]):
        place.chmod(place.stat().st_mode | 0o011)


def lives(pid: int) -> bool:
    """Return whether a process is there, no zombie, and not just taken apart by the
    kernel: that does nothing any more, and holds nothing for long."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    is_ending = int(words[6]) & 0x4  # PF_EXITING
    return words[0] not in "ZX" and not is_ending


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Let a process stand still while the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def end(pid: int) -> None:
    """Kill a process that a test has started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
