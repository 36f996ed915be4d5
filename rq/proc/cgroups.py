"""Control groups (version 2): limits of a script and all that it starts, together.

They are used where one was delegated to RQ, as rq.service asks systemd for: RQ runs in a
group of its own inside it, so that others may be made beside that one.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import lru_cache
from pathlib import Path

from rq.logs import fields
from rq.message.limits import Limits

_PROC, _MOUNT = Path("/proc"), "cgroup2"
_NEEDED = frozenset({"memory", "pids"})
_MARKS = ("user.delegate", "trusted.delegate")  # systemd sets one to 1

log = logging.getLogger(__name__)


def delegated(pid: int | str = "self", proc: Path = _PROC) -> Path | None:
    """Return the group in which that of a process may have others beside it, with limits
    of memory and processes; None: there is none. It changes nothing."""
    try:
        lines = _text(proc / f"{pid}/cgroup").split("\n")
        mount = _mount(_text(proc / "self/mounts"))
        own = next(line[3:] for line in lines if line.startswith("0::"))
        if mount is None or own == "/":
            return None
        base = (mount / own.lstrip("/")).parent
        has = set((base / "cgroup.controllers").read_text().split())
        return base if has >= _NEEDED and _is_ours(base) else None
    except (OSError, StopIteration):
        return None


def _text(path: Path) -> str:
    """Return a file of the kernel's, in which names of others stand: a line ends at a
    newline alone."""
    return os.fsdecode(path.read_bytes())


def _mount(mounts: str) -> Path | None:
    for line in mounts.split("\n"):
        words = line.split(" ")
        if len(words) > 2 and words[2] == _MOUNT:
            return Path(words[1])
    return None


def _is_ours(base: Path) -> bool:
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(base, mark) == b"1":
                return os.access(base / "cgroup.subtree_control", os.W_OK)
    return False


@lru_cache(maxsize=1)
def _base() -> Path | None:
    """Return the group in which this process makes others, made ready for that."""
    base = delegated()
    if base is None:
        return None
    try:
        (base / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError as error:
        log.warning(
            "the control group of RQ cannot be used; limits are those of single "
            "processes: %s",
            fields(group=base, reason=error.strerror or error),
        )
        return None
    return base


class Group:
    """The group of one script."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def limit(self, limits: Limits) -> None:
        """Set what all its processes may use together; OSError."""
        if limits.memory is not None:
            (self._place / "memory.max").write_text(str(limits.memory))
            (self._place / "memory.oom.group").write_text("1")
            with contextlib.suppress(OSError):  # no swap here
                (self._place / "memory.swap.max").write_text("0")
        if limits.processes is not None:
            (self._place / "pids.max").write_text(str(limits.processes))

    def add(self, pid: int) -> None:
        """Take in a process; what it starts from then on belongs to the group."""
        with contextlib.suppress(ProcessLookupError):
            (self._place / "cgroup.procs").write_text(str(pid))

    @property
    def oom_kills(self) -> int:
        """How many of its processes the kernel has ended for want of memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self._place / "memory.events").read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
        return 0

    def remove(self) -> None:
        """Remove it, unless a process is in it: then it stays as long as RQ runs."""
        with contextlib.suppress(OSError):
            self._place.rmdir()


def hold(pid: int, limits: Limits, base: Path | None = None) -> Group | None:
    """Put a process that has no children yet into a group with its limits; None where
    there are no groups, or it needs none."""
    if limits.memory is None and limits.processes is None:
        return None
    base = base or _base()
    if base is None:
        return None
    place = base / f"rq-script-{os.getpid()}-{pid}"
    group = Group(place)
    try:
        place.mkdir(exist_ok=True)
        group.limit(limits)
        group.add(pid)
    except OSError as error:
        log.warning(
            "a script gets no control group; its limits are those of single processes: "
            "%s",
            fields(group=place, reason=error.strerror or error),
        )
        group.remove()
        return None
    return group
