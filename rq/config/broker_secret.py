"""The secret that the nodes of a cluster share."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from rq.errors import BadConfig, BadInput, CannotRead, is_busy

_LEAST, _MOST = 16, 64 * 1024  # bytes


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


def new() -> bytes:
    """Return a secret that nobody guesses."""
    return secrets.token_hex(32).encode()


def given(fd: int, where: str) -> bytes:
    """Return the secret that a person gives in a file that is open, or over a pipe.
    BadInput: others could have read it there; BadConfig: it is none."""
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        raise BadInput(f"others can read {where}: chmod 600 it, and then it is taken")
    with open(fd, "rb", closefd=False) as file:
        return checked(file.read(_MOST), where)


def checked(data: bytes, where: str) -> bytes:
    """Return a secret without the blanks around it; BadConfig: it is too short."""
    secret = data.strip()
    if len(secret) < _LEAST:
        raise BadConfig(
            f"{where}: the secret has {len(secret)} bytes, and could be guessed: it takes "
            f"{_LEAST}; `openssl rand -hex 32` makes a good one"
        )
    return secret
