"""The secret that the nodes of a cluster share."""

from __future__ import annotations

import stat
from pathlib import Path

from rq.errors import BadConfig, CannotRead, is_busy

_LEAST = 16  # bytes


def read(path: Path) -> bytes:
    """Return the secret in a file. BadConfig: it is none, or others could read it.
    CannotRead: it cannot be read now."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise BadConfig(f"secret_file: {path} is not a regular file")
        if mode & 0o077:
            raise BadConfig(f"secret_file: others can use {path}: chmod 600 it")
        return checked(path.read_bytes(), f"secret_file: {path}")
    except OSError as error:
        kind = CannotRead if is_busy(error) else BadConfig
        raise kind(f"secret_file: {path} cannot be read: {error.strerror}") from None


def checked(data: bytes, where: str) -> bytes:
    """Return a secret without the blanks around it; BadConfig: it is too short."""
    secret = data.strip()
    if len(secret) < _LEAST:
        raise BadConfig(
            f"{where}: the secret has {len(secret)} bytes, and could be guessed: it takes "
            f"{_LEAST}; `openssl rand -hex 32` makes a good one"
        )
    return secret
