"""The timers of a root, without a supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from harness import cli
from harness.forks import Forked
from harness.kills import Site
from rq.timers.state import read_state


@contextlib.contextmanager
def timers(
    site: Site, crash_at: str = ""
) -> Iterator[subprocess.Popen[bytes] | Forked]:
    """Run the timers of a root."""
    told = ["rq.timers", "--root", str(site.root.path)]
    with (
        open(os.devnull) as null,
        (site.root.log / "timers.stderr").open("ab") as stderr,
    ):
        files = (null, stderr, stderr)
        process = cli.start(told, {"RQ_CRASH_AT": crash_at}, None, files)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def write(
    site: Site,
    name: str = "daily",
    period: int = 86400,
    cron: str | None = None,
    **said: Any,
) -> None:
    """Write a timer of queue q; `said` are settings, and fields of its message."""
    settings = {key: said.pop(key) for key in ("catch_up", "overlap") if key in said}
    rule = {"cron": cron} if cron else {"period": period}
    data = {**rule, **settings, "msg": {"dest": "q", **said}}
    (site.root.timers / f"{name}.json").write_text(json.dumps(data))


def past(site: Site, name: str = "daily") -> dict[str, Any]:
    """Return what a timer has done, as its file says."""
    with contextlib.suppress(Exception):
        return asdict(read_state(site.root)[name])
    return {}


def sent(site: Site) -> int:
    """Return how many messages the queue has ever accepted."""
    counts = site.queues["q"].ok("detail")["counts"]
    return sum(counts[state] for state in ("que", "run", "done", "err", "errack"))
