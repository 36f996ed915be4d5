"""The program: a pass when a hint says so, and now and then without one."""

from __future__ import annotations

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
_OF_DEFINITION = frozenset({"run", "config.json", "form.json"})
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
    hinted = _pass_on(scandir.root, watcher.hints())
    now = time.monotonic()
    if now < look_at and not hinted:
        return look_at
    watcher.follow(scandir.look(now))
    if scandir.timers_changed():
        _wake(scandir.root, scandir.root.timers_socket)
    scandir.say_hints(watcher.missing)
    return now + _pause(watcher, scandir)


def _pause(watcher: Watcher, scandir: Scandir) -> float:
    if scandir.gone_since:
        return GONE_FOR
    return LOOK_WITHOUT_HINTS if watcher.missing else LOOK


# ---- hints, passed on


def _pass_on(root: Root, hints: Iterable[Path]) -> bool:
    """Wake the queues and the timers of which something has changed; return whether the
    hints are a reason to look."""
    mine = False
    wake: set[Path] = set()
    for path in hints:
        if path.parent == root.config_dir:
            if path.suffix in (".down", ".pause"):
                wake.add(root.queue(path.stem).socket)
        elif path.parent.name == "new" and root.queues in path.parents:
            wake.add(QueueDir(path.parent.parent).socket)
        elif path.parent == root.timers:
            wake.add(root.timers_socket)
        else:
            near = path.parent == root.scandir
            mine = mine or near or path.name in _OF_DEFINITION
    for socket in wake:
        _wake(root, socket)
    return mine


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
