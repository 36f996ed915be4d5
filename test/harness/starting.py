"""Starting a process of RQ and hearing when it is ready."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from harness.checkout import CHECKOUT
from rq.config.settings import default_worker_env

READY = "{ready}"  # a word in place of the descriptor on which a process says so


def start(
    args: Sequence[str | os.PathLike[str]], env: Mapping[str, str], **popen: Any
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a program; return its process and what it says of its readiness: a newline
    when it is ready, else what is wrong, or nothing when it has died."""
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        [str(theirs) if word == READY else os.fspath(word) for word in args],
        pass_fds=(theirs, *popen.pop("pass_fds", ())),
        env=env,
        **popen,
    )
    os.close(theirs)
    said = os.read(ready, 4096)
    os.close(ready)
    return process, said.decode(errors="replace")


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `changes`, in which Python finds RQ and the
    harness."""
    first, last = changes.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")
    path = [first, str(CHECKOUT), str(CHECKOUT / "test"), last]
    found = os.pathsep.join(filter(None, path))
    return {**os.environ, **changes, "PYTHONPATH": found}


def script_environment() -> dict[str, str]:
    """Return what scripts start with, and a home without start-up files: a queue with the
    ancestor's config starts its script by a login shell."""
    return {**default_worker_env(), "HOME": os.environ["HOME"]}
