"""What is known of the tests, kept in a folder from one run to the next.

Which tests come by which places is asked of each file of tests once, for as long as neither
it changes, nor RQ, nor what all tests share.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from faults.mutants.plant import CHECKOUT
from faults.mutants.waiting import Passed

SHARED = ("rq/**/*.py", "test/harness/**/*.py", "test/**/conftest.py")
AT_ONCE = 60  # files of tests: what these say is kept, should the run be ended then

Ask = Callable[[list[str]], Iterable[Passed]]


class Kept:
    """What tests have said, by their file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shared = (path for words in SHARED for path in sorted(CHECKOUT.glob(words)))
        self._of_all = hashlib.sha256(b"".join(path.read_bytes() for path in shared))

    def said(self, files: list[str], ask: Ask) -> list[Passed]:
        """Return what the tests of some files say; ask those of which that is not kept."""
        new = [file for file in files if not self._path(file).exists()]
        for first in range(0, len(new), AT_ONCE):
            some = new[first : first + AT_ONCE]
            said: dict[str, list[Passed]] = {file: [] for file in some}
            for test in ask(some):
                said[test[1].partition("::")[0]].append(test)
            for file, tests in said.items():
                self._path(file).write_bytes(gzip.compress(json.dumps(tests).encode()))
        return [
            (seconds, name, passed)
            for file in files
            for seconds, name, passed in json.loads(
                gzip.decompress(self._path(file).read_bytes())
            )
        ]

    def _path(self, file: str) -> Path:
        digest = self._of_all.copy()
        digest.update(file.encode() + (CHECKOUT / file).read_bytes())
        return self._folder / f"{digest.hexdigest()}.json.gz"
