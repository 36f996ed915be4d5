"""Which directories the children have that keep a journal, and which are not started because
theirs is gone or another.

A path that leads elsewhere than when its owner began is one of another journal: it was
removed, moved or mounted over. To begin there would run messages twice, or take new ones into
the place beneath. Such a child is held until the operator has decided (`config.displaced`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from rq.config import displaced
from rq.config.begun import Begun
from rq.errors import RQError
from rq.layout import Root
from rq.supervisor.children import Kind, Process
from rq.supervisor.table import Table

log = logging.getLogger(__name__)


class Places:
    """The directories of queues and broker in one root."""

    def __init__(
        self, root: Root, table: Table, is_in_place: Callable[[], bool]
    ) -> None:
        """`is_in_place`: whether the path of the root still leads to ours."""
        self.root = root
        self.begun = Begun(root)
        self._table = table
        self._is_in_place = is_in_place

    def is_held(self, name: str) -> bool:
        return name in displaced.read(self.root) or self.begun.is_lost(name)

    def all_held(self) -> set[str]:
        """Return all for which `is_held` says so, of thousands at once."""
        return {*displaced.read(self.root), *self.begun.lost()}

    def hold_lost(self) -> None:
        """Hold what has begun and is not found at this start."""
        try:
            for name in self.begun.lost():
                if name not in displaced.read(self.root):
                    log.error("%s is held: %s", name, self.hold_back(name))
        except (OSError, RQError) as error:
            log.error("what has begun cannot be looked for: %s", error)

    def hold_if_strayed(self, name: str) -> None:
        """Hold a queue, which is about to be made or changed, if its path leads elsewhere
        than when its owner began, or nothing of it is found: the owner may not have seen
        it yet, was killed before it did, or does not run."""
        process = self._table.children.get((Kind.QUEUE, name))
        is_elsewhere = process is not None and self.is_elsewhere(process)
        if is_elsewhere or self.begun.is_lost(name):
            displaced.note(self.root, name, time.time())

    def is_elsewhere(self, process: Process) -> bool:
        began = process.place
        return began is not None and began != self.now(process)

    def now(self, process: Process) -> tuple[int, int] | None:
        """Return which directory the path leads to of a child that keeps a journal."""
        if process.kind is Kind.QUEUE:
            return _place_of(self.root.queue(process.name).path)
        return _place_of(self.root.broker) if process.kind is Kind.BROKER else None

    def hold_back(self, name: str) -> str:
        """Hold a child until the operator has decided; return why, in a sentence. Not by
        a supervisor that lost its root: another one's would be held."""
        try:
            if self._is_in_place():
                displaced.note(self.root, name, time.time())
        except (OSError, RQError) as error:
            log.error("%s cannot be noted as held: %s", name, error)
        return displaced.why(name)


def held_as(process: Process) -> str | None:
    """Return the name under which a child is held that has lost its directory; None: it
    has none of its own."""
    if process.kind is Kind.QUEUE:
        return process.name
    return displaced.BROKER if process.kind is Kind.BROKER else None


def _place_of(path: Path) -> tuple[int, int]:
    """Return which directory a path leads to; one that is none equals no other."""
    try:
        about = path.stat()
    except OSError:
        return 0, 0
    return about.st_dev, about.st_ino
