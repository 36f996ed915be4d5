"""Tests that fail once and pass when they are run again: flaky, not broken.

One test of thousands that loses a race on a busy machine must not refuse a change, and
must not be hidden either: its failure is printed in full and the closing table names it.
"""

import json
from collections.abc import Callable
from pathlib import Path

AGAIN = 2  # a test that is flaky passes all of them
MOST = 2  # flaky tests of one part; where more fail, something is broken

Run = Callable[[list[str]], set[str]]  # runs tests alone, returns those that fail


def failed_tests(cache: Path) -> set[str]:
    """Return the node ids that the last run of pytest with this cache saw fail."""
    path = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(path.read_bytes())) if path.exists() else set()


def find(failed: set[str], run: Run) -> set[str]:
    """Run the failed tests again, alone; return those that pass each time."""
    if len(failed) > MOST:
        return set()
    flaky = set(failed)
    for _ in range(AGAIN):
        if flaky:
            flaky -= run(sorted(flaky))
    return flaky
