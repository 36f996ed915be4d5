"""Directories to be removed: first renamed into `gone/`, then emptied, one in a turn."""

from __future__ import annotations

import logging
import os
from collections import deque

from rq.errors import is_busy
from rq.files import durable
from rq.journal.writer import DryRun, Journal
from rq.layout import QueueDir
from rq.logs import fields

_log = logging.getLogger(__name__)


class Gone:
    """The directories in `gone/` that wait to be removed; true while there are some."""

    def __init__(self, queue: QueueDir, dir_fd: int, journal: Journal | DryRun) -> None:
        self._queue = queue
        self._dir_fd = dir_fd
        self._journal = journal
        self._names: deque[str] = deque()
        self._again: list[str] = []  # what could not be removed for lack of descriptors

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, path: str) -> bool:
        """Whether `gone/NAME` waits to be removed."""
        return path.removeprefix("gone/") in self._names

    def doom(self, path: str, name: str) -> None:
        """Rename a directory to `gone/NAME`, and remove it later."""
        if os.path.lexists(self._queue.path / "gone" / name):
            # A message with this id came again through new/ before the folder of the
            # first was removed.
            name = f"{name}.{self._journal.seq}"
        try:
            durable.move(path, f"gone/{name}", self._dir_fd)
        except FileNotFoundError:
            return
        self._names.append(name)

    def take_over(self) -> None:
        """Remove what an earlier process left in `gone/`."""
        self._names.extend(os.listdir(self._queue.path / "gone"))

    def try_again(self) -> None:
        """Try again to remove what could not be removed for lack of descriptors."""
        self._names.extend(self._again)
        self._again.clear()

    def remove_next(self) -> None:
        """Remove the directory that has waited longest, if there is one."""
        if self._names:
            self.remove_one()

    def remove_one(self) -> None:
        """Remove the directory that has waited longest."""
        name = self._names.popleft()
        try:
            durable.remove_tree(f"gone/{name}", self._dir_fd)
        except OSError as error:
            if is_busy(error):
                self._again.append(name)
                return
            _log.error(
                "what is left of a removed message stays in gone/; RQ tries again at "
                "its next start: %s",
                fields(name=name, reason=error.strerror or error),
            )
