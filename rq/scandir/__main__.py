"""The program: a pass when a hint says so, and now and then without one."""

from __future__ import annotations

import functools
import logging
import select
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from rq.errors import RQError
from rq.files.watch import Watcher
from rq.layout import QueueDir, Root
from rq.rpc import client, helper
from rq.rpc.helper import Helper
from rq.scandir.passes import GONE_FOR, Scandir

WAKE_TIMEOUT = 0.5
_OF_QUEUE = ("/config.json", "/parked.json")
_OF_DEFINITION = frozenset({"run", "config.json", "form.json"})
LOOK = 2.0  # seconds between looks when hints work, at least …
SELDOM = 60.0  # … and at most: of thousands of queues a look takes a while
LOOK_WITHOUT_HINTS = 0.8
SHARE = 150  # a look may take one part in so many of the time, of a processor …
SHARE_WITHOUT_HINTS = 20  # … or in so few …
SHARE_WHEN_HINTED = 5  # … or, while queues are made one after the other, in so few
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
    watcher = Watcher(functools.partial(_is_news, f"{started.root.queues}/"))
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
    hinted = _pass_on(scandir, watcher.hints())
    if watcher.take_lost():
        hinted = True
        scandir.parked.clear()  # a file may have come to any of them
    now, began = time.monotonic(), time.thread_time()
    if hinted:
        look_at = min(look_at, scandir.soonest)
    if now < look_at:
        return look_at
    watcher.follow(scandir.look(now))
    if scandir.timers_changed():
        _wake(scandir.root, scandir.root.timers_socket)
    scandir.say_hints(watcher.missing)
    took = time.thread_time() - began
    scandir.pause = _pause(watcher, scandir, took)
    scandir.soonest = time.monotonic() + took * SHARE_WHEN_HINTED
    return now + scandir.pause


def _pause(watcher: Watcher, scandir: Scandir, took: float) -> float:
    """Return for how long nothing is looked at, if no hint comes, after a look that has taken
    so many seconds of a processor."""
    if scandir.gone_since:
        return GONE_FOR
    if watcher.missing:
        return max(LOOK_WITHOUT_HINTS, took * SHARE_WITHOUT_HINTS)
    # What has changed in a directory before it was watched is seen by the next look alone.
    return LOOK if watcher.has_more else min(SELDOM, max(LOOK, took * SHARE))


# ---- hints, passed on


def _is_news(queues: str, path: str) -> bool:
    """Whether a hint says anything: the owner of a queue writes in its directory, too, and
    takes a lock beside it."""
    if not path.startswith(queues):
        return True
    depth = path.count("/", len(queues))
    if depth == 0:
        return not path.startswith(".", len(queues))
    return depth > 1 or path.endswith(_OF_QUEUE)


def _pass_on(scandir: Scandir, hints: Iterable[Path]) -> bool:
    """Wake the queues and the timers of which something has changed; return whether the
    hints are a reason to look."""
    mine, root = False, scandir.root
    wake: set[Path] = set()
    for path in hints:
        if path.parent.parent == root.queues and path.name != "new":
            _look_at(scandir, path)
        elif path.parent == root.config_dir:
            if path.suffix in (".down", ".pause"):
                wake.add(root.queue(path.stem).socket)
        elif path.parent.name == "new" and root.queues in path.parents:
            wake.add(QueueDir(path.parent.parent).socket)
        elif path.parent == root.timers:
            wake.add(root.timers_socket)
        else:
            near = path.parent in (root.scandir, root.queues)
            mine = mine or near or path.name in _OF_DEFINITION
    for socket in wake:
        _wake(root, socket)
    return mine


def _look_at(scandir: Scandir, path: Path) -> None:
    name = path.parent.name
    if path.name == "config.json":
        scandir.look_at_config(name)
    elif path.name == "parked.json":
        scandir.look_at_parked(name)


def _wake(root: Root, socket: Path) -> None:
    """Say `wake` and do not wait: it is a hint, the owner looks by itself too."""
    try:
        if socket == root.timers_socket:
            client.ask_timers(socket, "wake", timeout=WAKE_TIMEOUT)
            return
        with client.Connection(socket, WAKE_TIMEOUT) as line:
            line.send("wake")
    except RQError as error:
        log.debug("%s", error)


if __name__ == "__main__":
    sys.exit(main())
