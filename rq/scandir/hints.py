"""Passes on, to the queues and to the timers, that something of theirs has changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from rq.errors import RQError
from rq.layout import QueueDir, Root
from rq.rpc import client

WAKE_TIMEOUT = 0.5
_OF_DEFINITION = frozenset({"run", "config.json", "form.json"})

log = logging.getLogger(__name__)


def pass_on(root: Root, hints: Iterable[Path]) -> bool:
    """Wake whom the hints concern; return whether they are a reason to look."""
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
