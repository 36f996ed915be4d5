"""The agent `rq work` as a process: its command line, its script, its directory."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile

from harness import cli
from harness.checkout import CHECKOUT
from harness.waiting import wait_until

QUIET = 'echo "done fine" >&3'


class Agent:
    """An agent with a directory and a script of its own."""

    def __init__(self, path, host):
        self.path = path
        self.host = host
        self.script = path / "script"
        self.dir = path / "dir"
        self.said = path / "said"
        self.process = None
        self.root = None  # where config/peers.json is

    def runs(self, script, config=""):
        self.script.mkdir(exist_ok=True)
        run = self.script / "run"
        run.write_text(f"#!/bin/sh\n{script}\n")
        run.chmod(0o755)
        if config:
            (self.script / "config.json").write_text(config)

    def words(self, *words):
        root = [] if self.root is None else ["--root", str(self.root)]
        at = [*root, "work", self.host.url]
        return [*at, "--dir", str(self.dir), "--grace", "2", *words]

    def command(self, *words):
        return [sys.executable, "-m", "rq.cli", *self.words(*words)]

    def once(self, *words, file_limit=None):
        """Run until nothing is due; return how it ended and what it wrote. `file_limit`:
        bytes that it can write into a file."""
        script = ["--script", str(self.script)] if self.script.exists() else []
        words = ["--once", *script, *words]
        if file_limit is None:
            return cli.rq(*self.words(*words), cwd=CHECKOUT)
        return subprocess.run(
            ["prlimit", f"--fsize={file_limit}", *self.command(*words)],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def begin(self, *words):
        """Start it; `end` ends it."""
        command = ["rq.cli", *self.words(*words)]
        with open(os.devnull) as null, self.said.open("wb") as said:
            self.process = cli.start(command, {}, CHECKOUT, (null, said, said))

    @contextlib.contextmanager
    def running(self, *words):
        """Run until the block ends, and to its end."""
        self.begin("--script", str(self.script), *words)
        try:
            yield self
        finally:
            self.end()

    def end(self, number=signal.SIGTERM):
        """End it; return what it wrote."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(30)
        return self.said.read_text()

    def folders(self):
        """Return what lies in the folders of messages."""
        return [path.name for path in self.dir.glob("*/*/msg/*")]


def sleeping(agent, host):
    """Give a message to a script that lasts."""
    host.give()
    agent.runs(f"sleep 1000 & echo $! > {agent.path}/pid; wait; {QUIET}")


def pid_of(agent):
    return int(wait_until((agent.path / "pid").read_text))


def tar_of(*members):
    """Return the tar of a script, as a queue shares it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def member(name, kind=tarfile.REGTYPE, mode=0o755, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, target
    return info
