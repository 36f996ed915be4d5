"""Kills an agent's scripts when the agent is killed: a process of its own, which waits for
the end of the agent and does nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rq.proc import daemon
from rq.proc.family import Family
from rq.work import place

DONE = b"."  # the agent ends by itself: nothing of it is left


class Guard:
    """The guard of one agent."""

    def __init__(self, path: Path, family: Family) -> None:
        """`path`: the agent's directory. OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rq.work.guard", str(path)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # what ends the agent's group does not end it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd="/",
        )
        self._family = family
        family.began(self._process.pid)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Let it end: the agent has no scripts any more."""
        self._process.communicate(DONE)
        self._family.ended(self._process.pid)


def main(argv: list[str]) -> int:
    """Wait for the end of the agent whose directory is named; then kill its scripts."""
    daemon.title("rq-work-guard")
    if os.read(0, 1) != DONE:
        place.end_scripts(Path(argv[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
