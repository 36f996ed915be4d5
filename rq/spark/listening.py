"""What this process and those it started listen on, as /proc tells it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True, slots=True, order=True)
class Listening:
    """A TCP socket that waits for connections."""

    address: str
    port: int

    @property
    def on_loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def sockets() -> list[Listening]:
    """List the sockets; none where there is no /proc."""
    inodes = {inode for pid in _family(os.getpid()) for inode in _inodes(pid)}
    return sorted(
        sock
        for name in ("tcp", "tcp6")
        for inode, sock in _table(Path("/proc/net") / name)
        if inode in inodes
    )


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from _family(int(child))


def _inodes(pid: int) -> Iterator[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if link := re.fullmatch(r"socket:\[(\d+)\]", target):
                yield link[1]


def _table(path: Path) -> Iterator[tuple[str, Listening]]:
    try:
        lines = path.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        words = line.split()
        if words[3] == _LISTEN:
            address, _, port = words[1].partition(":")
            yield words[9], Listening(_address(address), int(port, 16))


def _address(text: str) -> str:
    """Return an address that the kernel writes as words of its own byte order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
