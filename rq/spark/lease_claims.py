"""What a stream has leased and not finished yet: a directory with a file for each claim.

A claim is what one batch of the query reads. Its file is durable before its leases are
confirmed, and so before Spark hears of it; it goes when the batch is committed and the
leases are finished. It holds tokens, so no other user may read it.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from rq.config import files
from rq.errors import BadInput, Busy
from rq.proc import locks
from rq.replies import Grant

_FILE = re.compile(r"claim-(\d{1,18})\.json")
_STREAM = "stream"
_PATIENCE = 30.0  # seconds for the process of a query that was just killed
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Claim:
    """The leases that one batch reads."""

    number: int
    grants: Sequence[Grant]

    @property
    def tokens(self) -> list[str]:
        return [grant["token"] for grant in self.grants]


class Claims:
    """The directory of one stream, locked."""

    def __init__(self, place: Path) -> None:
        """BadInput when it cannot be used, Busy when another query uses it."""
        self._place = place
        try:
            files.make_dir(place)
            place.chmod(0o700)
            self._lock = _locked(place / "lock")
        except OSError as error:
            raise BadInput(f"claims: {place}: {error.strerror or error}") from None
        self.stream = self._name()

    def close(self) -> None:
        os.close(self._lock)

    def _name(self) -> str:
        """Return the name of this stream: its requests for leases are known by it."""
        path = self._place / _STREAM
        if not path.exists():
            files.write_secret(path, uuid.uuid4().hex)
        return path.read_text()

    def numbers(self) -> list[int]:
        """Return the numbers of all claims, in order."""
        matches = map(_FILE.fullmatch, os.listdir(self._place))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, number: int) -> Claim | None:
        """Return a claim; None if there is none of this number."""
        try:
            data = self._file(number).read_bytes()
        except FileNotFoundError:
            return None
        return Claim(number, cast(list[Grant], orjson.loads(data)))

    def write(self, claim: Claim) -> None:
        """Keep a claim, durably; OSError."""
        files.write_secret_state(self._file(claim.number), list(claim.grants))

    def remove(self, number: int) -> None:
        """Forget a claim whose leases have ended."""
        files.remove_link(self._file(number))

    def _file(self, number: int) -> Path:
        return self._place / f"claim-{number}.json"


def _locked(path: Path) -> int:
    until = time.monotonic() + _PATIENCE
    while (fd := locks.lock(path)) is None:
        if time.monotonic() > until:
            raise Busy(
                f"another query reads with the claims in {path.parent}: each needs a "
                "directory of its own"
            )
        time.sleep(_LOOK)
    return fd
