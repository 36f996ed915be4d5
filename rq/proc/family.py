"""The children of this process: its own scripts, and processes that outlived theirs.

This process is the subreaper of all that it starts: a process that outlives its script and
its own parents becomes its child. So one look at a short list shows whether there are any.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TASKS = Path("/proc/self/task")
_libc = ctypes.CDLL(None, use_errno=True)


class Family:
    """Scripts that this process waits for, and strangers among its children."""

    def __init__(self) -> None:
        """Become the parent of all descendants whose own parents end, where the kernel
        has that."""
        self._scripts: set[int] = set()
        self._adopts = (
            hasattr(_libc, "prctl")
            and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        )

    def began(self, pid: int) -> None:
        """A script was started, which other code waits for."""
        self._scripts.add(pid)

    def ended(self, pid: int) -> None:
        """A script that was started has been waited for."""
        self._scripts.discard(pid)

    def is_alone(self) -> bool:
        """Whether it is certain that no process lives on behind scripts that have
        ended."""
        return self._adopts and self.strangers() == set()

    def strangers(self) -> set[int] | None:
        """Return the children that live and that we did not start, and reap those that
        have ended; None where the kernel does not list children."""
        if not self._scripts and _has_none():
            return set()
        children = _children()
        if children is None:
            return None
        return {pid for pid in children - self._scripts if not _wait_for(pid)}


def _has_none() -> bool:
    """Whether this process has no child at all, by one question to the kernel."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _children() -> set[int] | None:
    """Return all children, also those that were not reaped yet; None: unknown.

    No child is reaped while the list is read, so none leaves it meanwhile, and new ones
    come at its end. So a process that lives all the while is seen, or its child is.
    """
    children: set[int] = set()
    try:
        for task in os.listdir(_TASKS):
            children.update(map(int, (_TASKS / task / "children").read_text().split()))
    except OSError:  # no such list, or a thread ended meanwhile
        return None
    return children


def _wait_for(pid: int) -> bool:
    """Whether a child has ended; then it is waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def wait_for_group(group: int) -> None:
    """Wait for those of a process group that have ended, but not for its leader: a new
    script may have its number."""
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_PGID, group, look)) and ended.si_pid != group:
            _wait_for(ended.si_pid)
