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
    if (secret := _read(root)) is not None:
        return secret
    turn = locks.lock_waiting(root.config_dir / "web.secret.lock")
    try:
        if (secret := _read(root)) is None:
            text = secrets.token_hex(_BYTES)
            files.write_secret(root.web_secret, text)
            secret = text.encode()
        return secret
    finally:
        os.close(turn)


def _read(root: Root) -> bytes | None:
    try:
        secret = root.web_secret.read_bytes()
    except FileNotFoundError:
        return None
    return secret if len(secret) >= _BYTES else None
