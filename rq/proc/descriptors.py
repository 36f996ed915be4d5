"""The descriptors of this process: whose they are, and how many may be open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterable


def own_descriptors(keep: Iterable[int] = ()) -> None:
    """Set close-on-exec on every descriptor from 3 up that is not in `keep`."""
    kept = set(keep)
    for fd in open_descriptors():
        if fd >= 3 and fd not in kept:
            with contextlib.suppress(OSError):
                os.set_inheritable(fd, False)


def open_descriptors() -> list[int]:
    for directory in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(directory):
            return sorted(int(name) for name in os.listdir(directory))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return list(range(min(limit, 65536)))


def park_descriptors() -> None:
    """Occupy 0, 3 and 4 with /dev/null, so that no pipe end is ever one of them.

    Whatever of value is on 3 or 4 is the caller's to move first. 0 goes to the programs
    that are started from then on.
    """
    null = move_above(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    for fd in (0, 3, 4):
        os.dup2(null, fd, inheritable=fd == 0)
    os.close(null)


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors that are the caller's: those in one call that follow each other."""
    ordered = sorted(fds)
    first = last = ordered[0]
    for fd in ordered[1:]:
        if fd != last + 1:
            os.closerange(first, last + 1)
            first = fd
        last = fd
    os.closerange(first, last + 1)


def limit() -> int:
    """Return how many descriptors may be open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**30 if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Allow as many descriptors as the hard limit does, up to 65536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def move_above(fd: int, lowest: int = 10) -> int:
    """Move a descriptor to `lowest` or above; return where it is."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(fd)
    return moved
