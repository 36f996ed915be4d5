"""Queues, and the broker, that have begun here: their journals have to be there at each start.

An owner that runs sees that its directory is gone. While it does not run (RQ is down, the
queue is stopped, the broker disabled) a directory may vanish unseen: it is removed, or its
file system is not mounted yet after a boot. To begin it again by itself would take messages
into the place beneath. So what has once been up is noted here, durably, and is held (see
`displaced`) when nothing of it is found. A note goes with the operator's word: the queue is
deleted, or may begin with what lies there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from rq import config
from rq.config import files
from rq.config.displaced import BROKER
from rq.errors import BadConfig
from rq.layout import Root

_PAUSE = 1.0  # seconds between two writes: a thousand queues come up together


class Begun:
    """What has begun in a root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._noted: frozenset[str] = frozenset()  # that are known to be on disk
        self._new: set[str] = set()
        self._write_at = 0.0  # monotonic
        self._content: tuple[config.Stamp, frozenset[str]] | None = None

    def note(self, names: Collection[str]) -> None:
        """Note queues, or BROKER, that are up and have a journal: one that the Ruby RQ left
        has none while it waits for the operator. OSError, BadConfig: some are not noted
        yet, and the next call tries again."""
        new = {*names} - self._noted - self._new
        self._new.update(name for name in new if self._is_found(name))
        now = time.monotonic()
        if self._new and now >= self._write_at:
            self._write_at = now + _PAUSE
            self.keep()

    def keep(self) -> None:
        """Let what is noted be on disk; as `note`."""
        if not self._new:
            return
        names = self._read() | self._new
        self._write(names)
        self._noted, self._new = names, set()

    def forget(self, name: str) -> None:
        """Let one begin without what it had, or be no more."""
        self._new.discard(name)
        self._noted -= {name}
        names = self._read()
        if name in names:
            self._write(names - {name})

    def lost(self) -> list[str]:
        """Return all that have begun and of which nothing is found. BadConfig: the file
        cannot be read."""
        return sorted(name for name in self._read() if not self._is_found(name))

    def is_lost(self, name: str) -> bool:
        """Whether one has begun, and nothing of it is found; as `lost`."""
        return name in self._read() and not self._is_found(name)

    def has(self, name: str) -> bool:
        """Whether one has begun and was not deleted; as `lost`."""
        return name in self._read()

    def _is_found(self, name: str) -> bool:
        if name == BROKER:
            return _has_entries(self._root.broker / "journal")
        queue = self._root.queue(name)
        return queue.config.exists() and _has_entries(queue.journal)

    def _read(self) -> frozenset[str]:
        path = self._root.begun
        look = config.stamp(path)
        if look is None:
            return frozenset()
        if self._content is None or self._content[0] != look:
            self._content = look, self._names_in(path)
        return self._content[1]

    def _names_in(self, path: Path) -> frozenset[str]:
        try:
            return frozenset(map(str, config.read_json(path)["names"]))
        except (ValueError, LookupError, TypeError) as error:
            raise BadConfig(f"{path} is damaged ({error}); remove it") from None

    def _write(self, names: Collection[str]) -> None:
        self._content = None
        files.write_state(self._root.begun, {"names": sorted(names)})


def _has_entries(path: Path) -> bool:
    """Whether there is something in a directory. One that cannot be looked at says
    nothing: the start that follows tells what is wrong with it."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
