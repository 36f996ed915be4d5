"""The process of one queue, for tests: SIGUSR1 lets it die at the point a file names."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from rq import durable
from rq.journal import segments
from rq.queues import housekeeping, process
from rq.queues.control import replies
from rq.spool import checkpoint, transactions


def main(root: Path, name: str, ready: int) -> int:
    asked = root / f"{name}.crash_at"

    def arm(_signal: int, _frame: object) -> None:
        durable.arm(asked.read_text())
        asked.unlink()

    signal.signal(signal.SIGUSR1, arm)
    if seconds := os.environ.get("TEST_CHECKPOINT_SECONDS"):
        checkpoint.AFTER_SECONDS = housekeeping.TICK = float(seconds)
    if seconds := os.environ.get("TEST_TICK"):
        housekeeping.TICK = float(seconds)
    if size := os.environ.get("TEST_SEGMENT"):
        segments.SMALLEST = int(size)
    if number := os.environ.get("TEST_INLINE"):
        transactions.INLINE = int(number)
    if seconds := os.environ.get("TEST_UNKNOWN_SECONDS"):
        replies.UNKNOWN_SECONDS = float(seconds)
    return process.main(root, name, ready_fd=ready, life_fd=None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
