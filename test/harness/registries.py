"""Packages that others have written, from their registries, and programs of Debian.

Packages are fetched once, into a place beside the environment of this checkout; without a
way to a registry the tests that need them are skipped, and say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.checkout import CHECKOUT

_PLACE = CHECKOUT / ".venv" / "clients"
_PATIENCE = 120.0  # seconds


def python_packages(*packages: str, alone: bool = True) -> Path:
    """Return a directory with packages from PyPI; `alone`: without what they depend on."""
    pip = ["-m", "pip", "install", "--quiet", "--no-input", *["--no-deps"] * alone]
    words = [sys.executable, *pip, "--disable-pip-version-check", "--target"]
    return _made(packages, lambda place: [*words, str(place), *packages])


def node_packages(*packages: str) -> Path:
    """Return a `node_modules` with packages from npm."""
    need("node", "nodejs")
    need("npm", "npm")
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    words += ["--ignore-scripts", "--prefix"]
    made = _made(packages, lambda place: [*words, str(place), *packages])
    return made / "node_modules"


def debian_packages(*packages: str) -> Path:
    """Return a directory with packages of Debian, unpacked and not installed; without what
    they depend on."""
    need("apt-get", "apt")
    unpack = 'cd "$1"; shift; apt-get download "$@"; for it in *.deb; do dpkg -x "$it" .; done'
    return _made(
        packages, lambda place: ["sh", "-ec", unpack, "sh", str(place), *packages]
    )


def redis_cli() -> str:
    """Return the path of redis-cli."""
    return need("redis-cli", "redis-tools")


def need(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} -> apt-get install {package}")
    return path


def _made(packages: Sequence[str], command) -> Path:
    """Return a directory that a command has filled, now or in an earlier run."""
    place = _PLACE / "+".join(packages)
    with _alone():
        if place.is_dir():
            return place
        with tempfile.TemporaryDirectory(dir=_PLACE) as scratch:
            fresh = Path(scratch, "fresh")
            fresh.mkdir()
            try:
                subprocess.run(
                    command(fresh), check=True, capture_output=True, timeout=_PATIENCE
                )
            except (OSError, subprocess.SubprocessError):
                what = " ".join(packages)
                pytest.skip(f"no {what} -> a way to its registry")
            fresh.rename(place)
    return place


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    _PLACE.mkdir(exist_ok=True)
    fd = os.open(_PLACE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
