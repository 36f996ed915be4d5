"""A disk of its own for a directory, so small that a test can fill it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(
    path: Path, size: str, *, part: str, mode: str = "1777"
) -> Iterator[None]:
    """Make a directory, if it is not there, with a disk that holds `size`, as mount takes
    it; skip the test where none can be mounted. `part`: of which the test is."""
    path.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode={mode}", "none", path]
    if os.geteuid() != 0 or subprocess.run(words, check=False, stderr=-3).returncode:
        pytest.skip(f"small disks need mount -> sudo ./test/run_tests.sh {part}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)
