"""Limits of a test's own process: descriptors, sizes of files, what is mounted."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def files_of(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes while the block runs, as on a full disk; no
    longer, for what pytest prints may go to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing more while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def free_descriptors(number: int) -> Iterator[None]:
    """Leave so many descriptors, whatever the limit is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@contextlib.contextmanager
def mounted_on(path: Path, *what: object) -> Iterator[None]:
    """Mount something on a directory while the block runs, by default itself: to rename
    the directory is EBUSY then."""
    words = ["mount", *map(str, what or ("--bind", path)), str(path)]
    if os.geteuid() or subprocess.run(words, check=False, stderr=-3).returncode:
        pytest.skip("nothing can be mounted here -> sudo, outside of a container")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)
