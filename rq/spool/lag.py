"""The lag: messages whose folders do not agree with the journal yet.

They are settled oldest first. A folder that cannot be made or moved is tried again after
a pause, which grows with each try; the others do not wait for it. Those of an open
transaction are put off until its decision, as far as memory goes: they are made in que
then, instead of in prep to be moved.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rq import back_off
from rq.logs import fields
from rq.message.message import Message
from rq.proc.slices import Slice
from rq.spool.entry import Counts, Entry
from rq.spool.gone import Gone
from rq.spool.mover import Mover
from rq.words.states import FINAL, State

MOST_PUT_OFF = 40_000  # folders, and …
PUT_OFF_BYTES = 32 * 1024 * 1024  # … bytes to be written into them, at most
LOOKS = 512  # folders that are looked at in one turn
REST = 1.0  # seconds that a folder rests after its first try; then twice as long, …
LONGEST_REST = 10.0  # … up to this

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stuck:
    """A folder that could not be made or moved."""

    reason: str
    tries: int
    until: float  # performance counter: it is not tried before


class Lag:
    """The messages whose folders are still to be made or moved.

    A message that has ended is forgotten when its folder lies in its last place.
    """

    def __init__(
        self, entries: dict[str, Entry], counts: Counts, mover: Mover, gone: Gone
    ) -> None:
        self.unsettled: dict[str, Entry] = {}
        self.size = 0  # bytes of what is to be written
        self.barrier: set[str] = set()  # what a checkpoint still waits for
        self.rests = 0  # folders that were left alone when some were settled last
        self._due: dict[str, None] = {}  # of the unsettled, those that do not rest
        self._put_off: dict[str, int] = {}  # those that are put off, and their bytes
        self._put_off_size = 0
        self._stuck: dict[str, Stuck] = {}
        self._resting: list[tuple[float, str]] = []  # a heap: until when, which
        self._entries = entries
        self._counts = counts
        self._mover = mover
        self._gone = gone
        self._spare: dict[str, Message] = {}

    @property
    def number(self) -> int:
        """How many folders are to be made or moved; what is put off does not count."""
        return len(self.unsettled) - len(self._put_off)

    def add(self, msg_id: str, entry: Entry) -> None:
        """Take a message in whose state has changed."""
        if msg_id not in self.unsettled:
            self.unsettled[msg_id] = entry
            self._due[msg_id] = None
            self.size += len(entry.body or b"")
        elif msg_id in self._put_off:
            self._hurry(msg_id)

    def add_all(self, ids: Sequence[str], entries: Sequence[Entry]) -> None:
        """As `add`, of many messages."""
        unsettled, due, size = self.unsettled, self._due, 0
        for msg_id, entry in zip(ids, entries, strict=True):
            if msg_id not in unsettled:
                unsettled[msg_id] = entry
                due[msg_id] = None
                size += len(entry.body or b"")
            elif msg_id in self._put_off:
                self._hurry(msg_id)
        self.size += size

    def put_off(self, msg_id: str) -> None:
        """Put a folder in prep off until its message is decided, `settle` wants it, or a
        checkpoint. If memory is short, those that have waited longest are made."""
        entry = self.unsettled[msg_id]
        if entry.at is not None or msg_id not in self._due:
            return
        size = len(entry.body or b"")
        del self._due[msg_id]
        self._put_off[msg_id] = size
        self._put_off_size += size
        self.size -= size
        if len(self._put_off) > MOST_PUT_OFF or self._put_off_size > PUT_OFF_BYTES:
            # Many at once: the first of a dict is found slowly behind those removed.
            for other in list(islice(self._put_off, LOOKS)):
                self._hurry(other)

    def _hurry(self, msg_id: str) -> None:
        """Put off a folder no longer."""
        size = self._put_off.pop(msg_id)
        self._put_off_size -= size
        self.size += size
        self._due[msg_id] = None

    def begin_barrier(self) -> None:
        """Note all folders that are unsettled now: a checkpoint waits for them."""
        for msg_id in list(self._put_off):
            self._hurry(msg_id)
        self.barrier = set(self.unsettled)

    def keep_spare(self, msg_id: str, message: Message) -> None:
        """Keep what makes the folder of a message again if a hand has removed it."""
        self._spare[msg_id] = message

    def since(self) -> float | None:
        """Return since when the oldest folder has waited, in epoch seconds; those that
        pause after a failed try do not count. None: no folder waits."""
        return next((self.unsettled[msg_id].since for msg_id in self._due), None)

    @property
    def stuck(self) -> str | None:
        """Why a folder could not be made or moved when that was last tried."""
        first = next(iter(self._stuck), None)
        if first is None:
            return None
        reason = f"{self._stuck[first].reason} (folder of {first})"
        more = len(self._stuck) - 1
        return f"{reason}, and {more} more" if more else reason

    def why_stuck(self, msg_id: str) -> str | None:
        """Return why the folder of a message cannot be made or moved; None: it can."""
        stuck = self._stuck.get(msg_id)
        return None if stuck is None else stuck.reason

    def settle(self, msg_id: str) -> None:
        """Make the folder of a message agree with its state; OSError when it cannot."""
        entry = self.unsettled.get(msg_id)
        if entry is None:
            return
        if msg_id in self._put_off:
            self._hurry(msg_id)
        size = len(entry.body or b"")
        remembered = self._mover.settle(msg_id, entry, self._spare.get(msg_id))
        if not remembered and entry.state in FINAL:
            self._counts.moved(entry.state, State.GONE)
        self._settled(msg_id, entry, size)

    def _settled(self, msg_id: str, entry: Entry, size: int) -> None:
        del self.unsettled[msg_id]
        self._due.pop(msg_id, None)
        self._stuck.pop(msg_id, None)
        self.size = max(0, self.size - size) if self.unsettled else 0
        self.barrier.discard(msg_id)
        self._spare.pop(msg_id, None)
        if entry.state in FINAL or entry.state is State.GONE:
            del self._entries[msg_id]

    def settle_some(self, seconds: float) -> bool:
        """Settle the oldest folders for `seconds`; return whether some are left that can
        be settled at once. `rests` tells whether some are left that cannot.

        A folder that cannot be moved now (no space, no permission) stays for later, and
        `stuck` says why.
        """
        now, turn = time.perf_counter(), Slice(seconds)
        self._wake(now)
        self.rests = 0
        for msg_id in list(islice(self._due, LOOKS)):
            entry = self.unsettled[msg_id]
            if entry.busy or (entry.state is State.RUN and entry.rests_until > now):
                self.rests += 1
                continue
            self._try(msg_id)
            if turn.is_over:
                break
        while self._gone and not turn.is_over:
            self._gone.remove_one()
        return bool(self._gone) or min(len(self._due), LOOKS) > self.rests

    def _try(self, msg_id: str) -> None:
        try:
            self.settle(msg_id)
        except OSError as error:
            self._stick(msg_id, error.strerror or str(error))
        except Exception as error:  # no folder may keep the others from being made
            log.error("RQ failed over the folder of %s", msg_id, exc_info=error)
            self._stick(msg_id, f"RQ failed over it: {error!r:.200}")

    def _wake(self, now: float) -> None:
        """Try those again whose pause is over."""
        while self._resting and self._resting[0][0] <= now:
            until, msg_id = heapq.heappop(self._resting)
            stuck = self._stuck.get(msg_id)
            if stuck is not None and stuck.until == until:
                self._due[msg_id] = None

    def _stick(self, msg_id: str, reason: str) -> None:
        """Try a folder again after a pause. `stuck` shows the reason until then, and
        until it has been settled."""
        before = self._stuck.get(msg_id)
        tries = before.tries + 1 if before else 1
        until = time.perf_counter() + back_off.delay(tries, REST, LONGEST_REST)
        self._stuck[msg_id] = Stuck(reason, tries, until)
        self._due.pop(msg_id, None)
        heapq.heappush(self._resting, (until, msg_id))
        if before is None or before.reason != reason:
            log.error(
                "a folder cannot be made or moved; the message stays accepted and it "
                "is tried again: %s",
                fields(msg_id=msg_id, reason=reason),
            )

    def settle_all(self) -> None:
        """Settle everything that can be; OSError when something cannot."""
        failed: OSError | None = None
        for msg_id in list(self.unsettled):
            try:
                self.settle(msg_id)
            except OSError as error:
                self._stick(msg_id, error.strerror or str(error))
                failed = failed or error
        self._gone.try_again()
        while self._gone:
            self._gone.remove_one()
        if failed is not None:
            raise failed
