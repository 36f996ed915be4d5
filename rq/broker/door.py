"""Who knows the password: wrong guesses are slowed, and the right one is worked out once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable
from concurrent.futures import Executor

from rq import passwords
from rq.access.guesses import Guesses

_NAME = "broker"  # there is one password for all


class Door:
    """Compares passwords with the hash of the right one, off the loop."""

    def __init__(self, stored: str, threads: Executor) -> None:
        self._stored = stored
        self._threads = threads
        self._guesses = Guesses()
        self._key = secrets.token_bytes(32)  # of the digest, which stays in memory
        self._right: bytes | None = None  # digest of the right password, once it came

    def knock(
        self, password: bytes, address: str, now: float, then: Callable[[bool], None]
    ) -> bool | None:
        """Return whether a password is the right one; None: `then` is told so in a
        while. TooOften: this address has guessed too often."""
        digest = hmac.digest(self._key, password, hashlib.sha256)
        if self._right is not None and hmac.compare_digest(digest, self._right):
            return True
        host = address.rpartition(":")[0]
        self._guesses.take(host, _NAME, now)
        compared = asyncio.get_running_loop().run_in_executor(
            self._threads,
            passwords.fits,
            password.decode(errors="replace"),
            self._stored,
        )

        def answer(compared: asyncio.Future[bool]) -> None:
            is_right = not compared.cancelled() and compared.result()
            if is_right:
                self._right = digest
                self._guesses.give_back(host, _NAME, now)
            then(is_right)

        compared.add_done_callback(answer)
        return None
