"""Hashes of passwords: `scrypt:N:R:P:SALT:HASH`, SALT and HASH in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os

from rq.errors import BadConfig

_NAME = "scrypt"
_N, _R, _P = 2**14, 8, 1
_MOST_N = 2**18  # more costs more memory than a login may
_MOST_MEMORY = 512 * 1024 * 1024
_NOBODY = "scrypt:16384:8:1:AAAAAAAAAAAAAAAAAAAAAA==:" + "A" * 43 + "="


def make(password: str) -> str:
    """Return a hash for a config file."""
    salt = os.urandom(16)
    digest = _scrypt(password, salt, _N, _R, _P, 32)
    coded = base64.b64encode(salt).decode(), base64.b64encode(digest).decode()
    return ":".join((_NAME, str(_N), str(_R), str(_P), *coded))


def is_hash(text: str) -> bool:
    return text.startswith(f"{_NAME}:")


def is_whole(stored: str) -> bool:
    """Return whether a hash is one, so that a password can be compared with it."""
    try:
        _parts(stored)
    except (ValueError, binascii.Error):
        return False
    return True


def check_form(user: str, stored: str) -> None:
    """Raise BadConfig when what is stored for a user can never fit."""
    if not stored:
        raise BadConfig(f"basic_auth: the password of {user} is empty")
    if is_hash(stored) and not is_whole(stored):
        raise BadConfig(
            f"basic_auth: the hash of {user} is damaged; make one with `rq passwd`"
        )


def fits(password: str, stored: str | None) -> bool:
    """Return whether a password is the stored one, in a time that tells nothing.

    `stored` None: there is no such user, which takes as long as a wrong password.
    """
    form = _NOBODY if stored is None or not is_hash(stored) else stored
    n, r, p, salt, wanted = _parts(form)
    digest = _scrypt(password, salt, n, r, p, len(wanted))
    if stored is not None and not is_hash(stored):
        return hmac.compare_digest(password.encode(), stored.encode())
    return hmac.compare_digest(digest, wanted) and stored is not None


def _parts(stored: str) -> tuple[int, int, int, bytes, bytes]:
    _, n, r, p, salt, wanted = stored.split(":")
    numbers = int(n), int(r), int(p)
    _check_bounds(*numbers)
    decoded = (
        base64.b64decode(salt, validate=True),
        base64.b64decode(wanted, validate=True),
    )
    if len(decoded[1]) < 16:
        raise ValueError("too short")
    return *numbers, *decoded


def _check_bounds(n: int, r: int, p: int) -> None:
    """ValueError for what scrypt does not take, or takes too much for."""
    if not (2 <= n <= _MOST_N and 0 < r <= 64 and 0 < p <= 16):
        raise ValueError("out of bounds")
    if n & (n - 1) or 128 * r * (n + p + 2) > _MOST_MEMORY:
        raise ValueError("no power of two, or too much memory")


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int, size: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MOST_MEMORY, dklen=size
    )
