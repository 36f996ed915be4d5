"""Three weeks that five queues might have had, published without Spark."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import history_reference
from harness.journal_files import JournalFiles, life
from rq.layout import Root

HOUR = 3600 * 10**6  # µs
DAYS = 20
# Queue: messages in a usual hour, and of how long a script runs the middle and spread
# of the logarithm of its µs.
QUEUES = {
    "thumbnails": (20, 9.5, 1.0),
    "video-encode": (2, 17.0, 1.2),
    "reports": (3, 15.0, 0.8),
    "newsletter": (8, 11.0, 0.5),
    "partner-sync": (4, 13.0, 1.5),
}
ENDS = (("finish", "done"), ("fail", "exit"), ("fail", "said_err"),
        ("retry", "resend"), ("recover", "crash"), ("relay", "relayed"))  # fmt: skip
WEIGHTS = (90, 2, 1.5, 4, 0.1, 1)


def publish_weeks(root: Root) -> None:
    """Publish in `root` what such queues would have done up to now."""
    with tempfile.TemporaryDirectory(prefix="rq-weeks-") as scratch:
        made = Root(Path(scratch))
        for number, name in enumerate(QUEUES):
            journal = JournalFiles(made, name, f"{number:08x}")
            journal.seal(sorted(weeks(name, number), key=lambda one: one["ts"]))
        history_reference.publish(made, time.time(), into=root)


def weeks(name: str, seed: int) -> Iterator[dict[str, Any]]:
    rnd = random.Random(seed)
    usual, middle, spread = QUEUES[name]
    now = int(time.time() * 1e6)
    for back in range(24 * DAYS, 0, -1):
        start = now - back * HOUR
        for _ in range(int(rnd.expovariate(1 / (usual * busy(start))))):
            end, cause = rnd.choices(ENDS, WEIGHTS)[0]
            at = start + rnd.randrange(HOUR)
            stamp = time.strftime("%Y%m%d.%H%M.%S", time.gmtime(at / 1e6))
            yield from life(
                f"{stamp}.{at // 1000 % 1000:03d}.1795254001{rnd.randrange(10**9):09d}",
                at,
                end=end,
                cause=cause,
                wait_us=int(rnd.lognormvariate(8 + busy(start), 1.2)),
                run_us=int(rnd.lognormvariate(middle, spread)),
            )


def busy(at: int) -> float:
    """Return how busy an hour is: at noon most, at weekends little."""
    moment = time.gmtime(at / 1e6)
    day = 0.3 + 2.5 * max(0.0, math.sin((moment.tm_hour - 5) / 24 * 2 * math.pi))
    return day * (0.3 if moment.tm_wday > 4 else 1.0)
