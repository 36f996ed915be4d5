"""A sandbox that stands while tests run, for programs that are told where it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from harness.checkout import CHECKOUT

NAMES = ("RQ_URL", "RQ_TOKEN", "RQ_ROOT", "RQ_WEBHOOK_SECRET")
_SAY = f"echo {' '.join(f'${name}' for name in NAMES)}; read end"


@contextlib.contextmanager
def standing(*words: object, **variables: str) -> Iterator[dict[str, str]]:
    """Give the environment of a command in `rq sandbox WORDS`."""
    command = [sys.executable, "-m", "rq.cli", "sandbox", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), **variables}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "--", "sh", "-c", _SAY], stdin=pipe, stdout=pipe, text=True, env=env
    ) as process:
        assert process.stdout
        values = process.stdout.readline().split()
        try:
            yield {**os.environ, **dict(zip(NAMES, values, strict=True))}
        finally:
            process.communicate("\n")
