"""A broker for tests: what takes many megabytes is made small by its
environment."""

from __future__ import annotations

import os
import sys

from rq.broker import process
from rq.broker.store import bodies, compaction
from rq.journal import segments


def main() -> int:
    if small := os.environ.get("TEST_SNAPSHOT"):  # bytes of journal
        compaction.SNAPSHOT_BYTES, compaction.LINE = int(small), 0
    if small := os.environ.get("TEST_LARGE"):  # bytes of a body
        bodies.LARGE = int(small)
    if small := os.environ.get("TEST_SEGMENT"):
        segments.SMALLEST = int(small)
    return process.alone() if "--dir" in sys.argv else process.main()


if __name__ == "__main__":
    sys.exit(main())
