"""Clients of Redis and Disque that others have written, and the stories they tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.broker import Broker

STORIES = Path(__file__).with_name("broker_stories")
REDIS_5, REDIS_NEWEST = "redis==5.2.1", "redis==8.1.0"
PYDISQUE = ("pydisque==0.1.5", "six==1.17.0")
NODE_REDIS = "redis@6.3.1"
_PATIENCE = 60.0  # seconds


def python_story(name: str, broker: Broker, *words: object, packages: Sequence[Path]):
    """Let a program of Python's tell its story with a broker, and packages on its path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages))}
    tell([sys.executable, STORIES / name, broker.port, *words], broker, env)


def node_story(name: str, broker: Broker, *words: object) -> None:
    """Let a program of Node's tell its story with a broker."""
    tell(["node", STORIES / name, broker.port, *words], broker, dict(os.environ))


def tell(words: Sequence[object], broker: Broker, env: dict[str, str]) -> None:
    """Run a program to its end; when it says `kill`, the broker is killed and started
    again under it."""
    with subprocess.Popen(
        list(map(str, words)),
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            if program.stdout.readline() == "kill\n":
                broker.restart()
            said, trouble = program.communicate("there\n", timeout=_PATIENCE)
        finally:
            program.kill()
    assert (said, program.returncode) == ("done\n", 0), trouble
