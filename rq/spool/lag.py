"""The lag: messages whose folders do not agree with the journal yet, oldest first."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from rq.logs import fields
from rq.message import Message
from rq.spool.entry import Counts, Entry
from rq.spool.gone import Gone
from rq.spool.mover import Mover
from rq.states import FINAL, State

_log = logging.getLogger(__name__)


class Lag:
    """What is still to be done on disk; what has ended leaves `entries` with it."""

    def __init__(
        self, entries: dict[str, Entry], counts: Counts, mover: Mover, gone: Gone
    ) -> None:
        self.unsettled: dict[str, Entry] = {}
        self.size = 0  # bytes of what is to be written
        self.stuck: str | None = None  # why a folder could not be made or moved
        self.barrier: set[str] = set()  # what a checkpoint still waits for
        self._entries = entries
        self._counts = counts
        self._mover = mover
        self._gone = gone
        self._told: dict[str, str] = {}  # what was logged of folders that are stuck
        self._spare: dict[str, Message] = {}

    def add(self, msg_id: str, entry: Entry) -> None:
        """Take a message in whose state has changed."""
        if msg_id not in self.unsettled:
            self.unsettled[msg_id] = entry
            self.size += len(entry.body or b"")

    def keep_spare(self, msg_id: str, message: Message) -> None:
        """Keep what makes the folder of a message again if a hand has removed it."""
        self._spare[msg_id] = message

    def since(self) -> float | None:
        """Return since when the oldest has waited, in epoch seconds; None: none does."""
        return next((one.since for one in self.unsettled.values()), None)

    def settle(self, msg_id: str) -> None:
        """Make the folder of a message agree with its state; OSError when it cannot."""
        entry = self.unsettled.get(msg_id)
        if entry is None:
            return
        size = len(entry.body or b"")
        found = self._mover.settle(msg_id, entry, self._spare.get(msg_id))
        if not found and entry.state in FINAL:
            self._counts.moved(entry.state, State.GONE)
        self._settled(msg_id, entry, size)

    def _settled(self, msg_id: str, entry: Entry, size: int) -> None:
        del self.unsettled[msg_id]
        self.size = max(0, self.size - size) if self.unsettled else 0
        self.barrier.discard(msg_id)
        self._spare.pop(msg_id, None)
        self._told.pop(msg_id, None)
        if entry.state in FINAL or entry.state is State.GONE:
            del self._entries[msg_id]

    def settle_some(self, seconds: float) -> bool:
        """Settle the oldest folders for `seconds`; return whether some are left.

        A folder that cannot be moved now (no space, no permission) stays for later, and
        `stuck` says why.
        """
        now = time.perf_counter()
        until = now + seconds
        settled, reason = 0, None
        for msg_id in list(_first(self.unsettled, 512)):
            entry = self.unsettled[msg_id]
            if entry.busy or (entry.state is State.RUN and entry.rests_until > now):
                continue
            try:
                self.settle(msg_id)
                settled += 1
            except OSError as error:
                reason = self._stick(msg_id, error)
            if time.perf_counter() > until:
                break
        self.stuck = reason
        while self._gone and time.perf_counter() < until:
            self._gone.remove_one()
        # When all that is left is stuck, the caller comes back later.
        return bool(self._gone) or bool(self.unsettled and (settled or not reason))

    def _stick(self, msg_id: str, error: OSError) -> str:
        reason = f"{error.strerror or error} (folder of {msg_id})"
        if self._told.get(msg_id) != reason:
            self._told[msg_id] = reason
            _log.error(
                "a folder cannot be made or moved; the message stays accepted and it "
                "is tried again: %s",
                fields(msg_id=msg_id, reason=error.strerror or error),
            )
        return reason

    def settle_all(self) -> None:
        """Settle everything; OSError when something cannot be."""
        for msg_id in list(self.unsettled):
            self.settle(msg_id)
        self._gone.try_again()
        while self._gone:
            self._gone.remove_one()


def _first(table: Mapping[str, Entry], number: int) -> Iterable[str]:
    for _, one in zip(range(number), table, strict=False):
        yield one
