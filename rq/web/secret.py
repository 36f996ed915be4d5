"""The secret of an installation's web, which signs its session cookies."""

from __future__ import annotations

import os
import secrets

from rq.config import files
from rq.layout import Root
from rq.proc import locks

_BYTES = 32


def of(root: Root) -> bytes:
    """Return the secret; made when there is none. All web processes have the same one,
    also those that start at the same moment."""
    if (found := _read(root)) is not None:
        return found
    turn = locks.lock_waiting(root.config_dir / "web.secret.lock")
    try:
        if (found := _read(root)) is None:
            made = secrets.token_hex(_BYTES)
            files.write_secret(root.web_secret, made)
            found = made.encode()
        return found
    finally:
        os.close(turn)


def _read(root: Root) -> bytes | None:
    try:
        found = root.web_secret.read_bytes()
    except FileNotFoundError:
        return None
    return found if len(found) >= _BYTES else None
