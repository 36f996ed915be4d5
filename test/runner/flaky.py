"""Tests that fail once and pass when they are run again: flaky, not broken.

One test of thousands that loses a race on a busy machine must not refuse a change, and
must not be hidden either: its failure is printed in full and the closing table names it.
"""

import json
from collections.abc import Callable
from pathlib import Path

AGAIN = 2  # a test that is flaky passes all of them
MOST = 2  # flaky tests of one part; where more fail, something is broken
# Their files draw what happens by chance: what such a test finds may not come again.
RANDOM = ("test_random_", "test_soak")


def failed_tests(cache: Path) -> set[str]:
    """Return the node ids that the last run of pytest with this cache saw fail."""
    path = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(path.read_bytes())) if path.exists() else set()


def find(failed: set[str], passes: Callable[[str], bool]) -> list[str]:
    """Return the failed tests that pass each time when they are run again, alone."""
    if len(failed) > MOST:
        return []
    return [
        test
        for test in sorted(failed)
        if not _is_random(test) and all(passes(test) for _ in range(AGAIN))
    ]


def _is_random(test: str) -> bool:
    return Path(test.partition("::")[0]).name.startswith(RANDOM)
