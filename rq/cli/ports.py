"""Who listens on a TCP port; best effort, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rq.cli import term
from rq.errors import Refused
from rq.proc import listening

_LISTEN = "0A"


def holder(addr: str, port: int) -> str | None:
    """Return who holds the port at an address that a server takes for the one in its
    settings, in words; None: all are free."""
    if is_free(addr, port):
        return None
    inodes = _listening(port)
    for process in Path("/proc").glob("[0-9]*"):
        if _holds(process, inodes):
            return f"{_name(process)} (pid {process.name})"
    return "another process (run `ss -ltnp` as root to see which)"


def is_free(addr: str, port: int) -> bool:
    """Return whether a server could listen now at all addresses that it would take."""
    return all(listening.is_free(each, port) for each in listening.addresses(addr))


def is_needed(addr: str, port: int) -> bool:
    """Return whether the port is taken where a server cannot do without it."""
    return not listening.is_free(listening.number(addr), port)


def first_free(addr: str, port: int, tries: int) -> int:
    """Return the first free port from `port` up."""
    for candidate in range(port, port + tries):
        if is_free(addr, candidate):
            return candidate
    raise Refused(f"no free port from {port} to {port + tries - 1}: see rq-install")


def _listening(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == (
                    port
                ):
                    inodes.add(f"socket:[{fields[9]}]")
    return inodes


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        return any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir())
    except OSError:
        return False


def _name(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "a process"
    command = " ".join(word.decode("utf-8", "replace") for word in words[:5])
    return term.plain(" ".join(command.split()))[:80] or "a process"
