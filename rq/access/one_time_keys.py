"""Keys that sign in once: a user of RQ's own makes one, a browser takes it to the web.

A key is a file `config/once/SHA256`. Only who may write there can make one: RQ's own
user, and root.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from rq import config
from rq.config import files
from rq.errors import BadConfig, CannotRead
from rq.layout import Root

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Key:
    """What is kept of a key."""

    who: str
    uid: int | None


def make(root: Root, who: str, now: float, uid: int | None = None) -> str:
    """Return a new key for `who`, valid for a minute and one use; with `uid` only for
    this user of the machine, by the kernel's word: others may have seen it."""
    files.make_dir(root.once)
    _sweep(root, now)
    key = secrets.token_hex(32)
    data = {"who": who, "until": now + SECONDS, "uid": uid}
    files.write_secret_state(_path(root, key), data)
    return key


def take(root: Root, key: str, now: float, uid: int | None = None) -> str | None:
    """Return who made a key, and end it; None when it was used, is old or no key, and
    when it is for another user than `uid`, who does not end it.

    CannotRead: that is not known, and the key is there still.
    Ensures that of several who take one key at the same time one gets it.
    """
    path = _path(root, key)
    kept = _valid(path, now)
    if kept is not None and kept.uid not in (None, uid):
        return None
    return kept.who if files.claim(path) and kept is not None else None


def _path(root: Root, key: str) -> Path:
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return root.once / digest


def _valid(path: Path, now: float) -> _Key | None:
    try:
        data = config.read_json(path)
        until, uid = float(data["until"]), data.get("uid")
        key = _Key(str(data["who"]), None if uid is None else int(uid))
        return key if until - SECONDS <= now < until else None
    except CannotRead:
        raise
    except (BadConfig, KeyError, TypeError, ValueError):
        return None


def _sweep(root: Root, now: float) -> None:
    for path in root.once.iterdir():
        with contextlib.suppress(CannotRead):
            if not path.name.startswith(".") and _valid(path, now) is None:
                files.claim(path)
