"""How long one command takes that changes many messages in err, and how long others wait
for their answers meanwhile.

    RQ_BENCH_MESSAGES=100000 .venv/bin/python test/bench/retry_many.py retry
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

from harness.kills import Queue, Site, site_at  # noqa: E402
from harness.spool import Owner  # noqa: E402

from rq.words.states import Event, Role  # noqa: E402

TOTAL = int(os.environ.get("RQ_BENCH_MESSAGES", "20000"))
TICKS = os.sysconf("SC_CLK_TCK")


def failed(site: Site) -> Queue:
    """Return a paused queue with TOTAL messages in err."""
    queue = site.queue()
    owner = Owner(site.root.path, time.time, "t")
    spool = owner.open()
    for number in range(1, TOTAL + 1):
        msg_id = owner.submit(dest="t", count=3, param1=f"p{number % 100}")
        facts = {"cause": "said_err", "text": "of a bench", "outcome": "err"}
        spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
        spool.commit_when_full()
        if number % 5000 == 0:
            owner.apply()
    owner.apply()
    owner.stop()
    site.root.pause("t").touch()
    return queue.start()


def cpu(pid: int) -> float:
    """Return the processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(n) for n in fields[11:13]) / TICKS


def main(action: str) -> None:
    with tempfile.TemporaryDirectory() as place, site_at(Path(place) / "root") as site:
        queue = failed(site)
        pid = queue.process.pid
        began, spent, worst = time.time(), cpu(pid), 0.0
        queue.ok("bulk", {"action": action, "filter": {"state": "err"}})
        while True:
            asked = time.time()
            [view] = queue.ok("list_bulks")
            worst = max(worst, time.time() - asked)
            if view["state"] != "open":
                break
            time.sleep(0.2)
        took, spent = time.time() - began, cpu(pid) - spent
    print(
        f"{action} of {view['changed']}: {took:.1f} s, {spent / TOTAL * 1e6:.0f} µs of "
        f"processor time each; another request waited {worst * 1000:.0f} ms at most"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "retry")
