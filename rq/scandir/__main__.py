"""The program: a pass when a hint says so, and now and then without one."""

from __future__ import annotations

import logging
import select
import sys
import time

from rq.errors import RQError
from rq.files.watch import Watcher
from rq.rpc import helper
from rq.rpc.helper import Helper
from rq.scandir import hints
from rq.scandir.passes import GONE_FOR, Scandir

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
    while _rest(watcher, started.life_fd, look_at):
        try:
            look_at = _pass(watcher, scandir, look_at)
        except Exception:
            log.exception("a look at %s failed", scandir.root.scandir)
            look_at = time.monotonic() + LOOK


def _rest(watcher: Watcher, life_fd: int | None, until: float) -> bool:
    """Wait for a hint or for the time to look; False when the supervisor is gone."""
    waiting = [fd for fd in (watcher.fileno(), life_fd) if fd is not None]
    timeout = max(0.0, until - time.monotonic())
    ready, _, _ = select.select(waiting, [], [], timeout)
    if watcher.fileno() in ready:
        time.sleep(SETTLE)
    return life_fd not in ready


def _pass(watcher: Watcher, scandir: Scandir, look_at: float) -> float:
    """Pass hints on, look when it is time or a hint says so; return when it is next."""
    hinted = hints.pass_on(scandir.root, watcher.hints())
    now = time.monotonic()
    if now < look_at and not hinted:
        return look_at
    watcher.follow(scandir.look(now))
    scandir.say_hints(watcher.missing)
    return now + _pause(watcher, scandir)


def _pause(watcher: Watcher, scandir: Scandir) -> float:
    if scandir.gone_since:
        return GONE_FOR
    return LOOK_WITHOUT_HINTS if watcher.missing else LOOK


if __name__ == "__main__":
    sys.exit(main())
