"""Whether the disk has room for more messages; a little is kept to finish with."""

from __future__ import annotations

import os
import time

from rq.config.settings import RootConfig
from rq.wording import size

HOLDS = 1.0  # seconds that an answer holds


class DiskRoom:
    """Looks at the disk of a queue, not too often."""

    def __init__(self, dir_fd: int, kept: RootConfig) -> None:
        self._dir_fd = dir_fd
        self._kept = kept
        self._looked = 0.0
        self._lacking: str | None = None

    def lacking(self) -> str | None:
        """Return why there is no room; None while there is."""
        now = time.monotonic()
        if now - self._looked > HOLDS:
            self._lacking = self._look()
            self._looked = now
        return self._lacking

    def _look(self) -> str | None:
        room, kept = os.statvfs(self._dir_fd), self._kept
        free = room.f_bavail * room.f_frsize
        if free < kept.min_free_bytes:
            return (
                f"the disk is full: {size(free)} free, and RQ keeps "
                f"{size(kept.min_free_bytes)}; free some, or lower min_free_bytes in "
                "config/config.json"
            )
        if room.f_files and room.f_favail < kept.min_free_inodes:
            return (
                f"the disk is out of inodes: {room.f_favail:,} free, and RQ keeps "
                f"{kept.min_free_inodes:,}; free some, or lower min_free_inodes in "
                "config/config.json"
            )
        return None
