"""Roots that another user of this machine can reach, and such users."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rq.scripts import run_as

NOBODY, OTHER = 65534, 65533  # numbers of users that own nothing here
GROUP, OTHER_GROUP = 65534, 65533


def need_root() -> None:
    """Skip where scripts cannot run as other users."""
    if os.geteuid() != 0:
        pytest.skip("only root starts scripts as other users -> run as root")
    if not run_as.setpriv():
        pytest.skip("there is no setpriv -> apt-get install util-linux")


@contextlib.contextmanager
def open_root() -> Iterator[Path]:
    """Give a directory that all users may pass through."""
    need_root()
    path = Path(tempfile.mkdtemp(prefix="rq-user-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)
