"""The program: a pass when a hint says so, and now and then without one."""

from __future__ import annotations

import logging
import select
import sys
import time

from rq import helper
from rq.errors import RQError
from rq.helper import Helper
from rq.scandir import hints
from rq.scandir.passes import GONE_FOR, Scandir
from rq.watch import Watcher

LOOK = 2.0  # seconds between looks when hints work
LOOK_WITHOUT_HINTS = 0.8
SETTLE = 0.05  # seconds from a hint to the look, so that a burst is one look

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    try:
        started = helper.start("scandir", argv)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-scandir: {error}\n")
        return 1
    _run(started, Scandir(started.root))
    return 0


def _run(started: Helper, scandir: Scandir) -> None:
    watcher = Watcher()
    look_at = 0.0
    started.say_ready()
    while True:
        try:
            now = time.monotonic()
            if now >= look_at:
                watcher.follow(scandir.look(now))
                look_at = now + _pause(watcher, scandir)
        except Exception:
            log.exception("a look at %s failed", scandir.root.scandir)
            look_at = time.monotonic() + LOOK
        waiting = [watcher.fileno()]
        if started.life_fd is not None:
            waiting.append(started.life_fd)
        timeout = max(0.0, look_at - time.monotonic())
        ready, _, _ = select.select(waiting, [], [], timeout)
        if started.life_fd in ready:
            return
        if ready:
            time.sleep(SETTLE)
            if hints.pass_on(scandir.root, watcher.hints()):
                look_at = 0.0


def _pause(watcher: Watcher, scandir: Scandir) -> float:
    if scandir.gone_since:
        return GONE_FOR
    return LOOK if watcher.works else LOOK_WITHOUT_HINTS


if __name__ == "__main__":
    sys.exit(main())
