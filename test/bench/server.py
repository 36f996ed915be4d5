"""Processes that a benchmark starts: each ended by its pid, each waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Server:
    """A peer at work: how its clients reach it, and which processes hold its queue."""

    module: str
    address: str
    python: Path | str
    env: dict[str, str] = field(default_factory=dict)
    pids: Sequence[int] = ()

    def memory(self) -> int:
        """Return the bytes that its processes hold (PSS)."""
        return sum(map(pss, self.pids))


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], log: Path, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` until the block ends, then kill it with all its children."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a process as its operator does; kill what stays."""
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def until(fact: Callable[[], object], seconds: float) -> None:
    """Wait until `fact` is true; an error is false."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError, SystemExit, ValueError, KeyError):
            if fact():
                return
        time.sleep(0.005)
    raise SystemExit(f"not within {seconds:.0f} s")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def says(port: int, request: bytes, answer: bytes) -> bool:
    """Return whether a server on loopback answers so."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(request)
        return line.recv(64).startswith(answer)


def pss(pid: int) -> int:
    for text in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if text.startswith("Pss:"):
            return int(text.split()[1]) * 1024
    return 0


def make_venv(directory: Path, packages: Sequence[str]) -> str | None:
    """Make a Python environment with `packages`; return why it could not be made."""
    python = directory / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    words = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    made = subprocess.run([*words, *packages], capture_output=True, check=False)
    command = f"pip install {' '.join(packages)}"
    return f"no {packages[0]} -> {command}" if made.returncode else None


def get_program(name: str, package: str) -> str | None:
    """Return why a program is missing; root installs it."""
    apt = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", package]
    if not found(name) and os.geteuid() == 0 and found("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # RUNLEVEL=1: the package must not start a server of its own.
        env["RUNLEVEL"] = "1"
        for words in (["apt-get", "-qq", "update"], apt):
            subprocess.run(words, env=env, capture_output=True, check=False)
    return None if found(name) else f"no {name} -> apt-get install {package}"


def found(name: str) -> str:
    """Return the path of a program, also of one for the administrator; '' if none."""
    for directory in [*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"]:
        if os.access(Path(directory, name), os.X_OK):
            return str(Path(directory, name))
    return ""
