"""Files that a command line names, opened as the person who names them.

Root's files must be open before a verb goes on as the user whose RQ it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rq.errors import BadInput

# A fifo without a writer must not keep a verb waiting.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Files:
    """Opens files by name; those that were held keep the rights of who held them."""

    held: Mapping[str, int] = field(default_factory=dict)

    def open(self, path: str) -> int:
        """Return a descriptor at the file's beginning, the caller's to close."""
        if path not in self.held:
            return _open(path)
        fd = os.dup(self.held[path])
        with contextlib.suppress(OSError):  # a fifo has no beginning
            os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def read(self, path: str) -> bytes:
        """Return all that a file holds."""
        with open(self.open(path), "rb") as file:
            return file.read()


FRESH = Files()  # nothing is held: each is opened when it is needed


def hold(paths: Iterable[str]) -> Files:
    """Open all of them now."""
    return Files({path: _open(path) for path in paths})


def _open(path: str) -> int:
    try:
        return os.open(path, _FLAGS)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot open {path}: {reason}") from None
