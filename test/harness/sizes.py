"""What a process holds: descriptors, threads, watches, memory."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Size:
    """What a process holds."""

    fds: int
    threads: int
    watches: int
    memory: int  # bytes that are its own

    def within(self, before: Size) -> bool:
        """Whether it has not grown, as far as one can tell on a busy machine."""
        return (
            self.fds <= before.fds + 10
            and self.threads <= before.threads + 32  # pools grow to their size
            and self.watches <= before.watches + 8
            and self.memory <= before.memory * 1.3 + 24 * 2**20
        )


def size_of(pid: int) -> Size:
    place = Path(f"/proc/{pid}")
    rollup = (place / "smaps_rollup").read_text().splitlines()
    own = [line.split() for line in rollup if line.startswith("Private_")]
    return Size(
        fds=len(os.listdir(place / "fd")),
        threads=len(os.listdir(place / "task")),
        watches=sum(watches(one) for one in (place / "fdinfo").iterdir()),
        memory=sum(int(words[1]) for words in own) * 1024,
    )


def watches(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.read_text().count("inotify wd:")
    return 0
