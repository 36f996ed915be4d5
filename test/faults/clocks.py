"""Wall clocks that tests set, and processes that stand still."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness.waiting import wait_until

HOUR, DAY = 3600, 86400


class Clock:
    """The wall clock of a process."""

    def __init__(self, library: Path, path: Path) -> None:
        self.path = path
        self.set(0)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(path)}

    def set(self, seconds: int) -> None:
        """Let it be so many seconds ahead of the real one."""
        new = self.path.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self.path)


def stop(pid: int) -> None:
    """Let a process stand still, and wait until it does."""
    os.kill(pid, signal.SIGSTOP)

    def stands() -> bool:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    wait_until(stands, 20)
