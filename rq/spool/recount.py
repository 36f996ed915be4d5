"""Counts messages that have ended while their owner goes on with them.

A count changes with each event and is never recounted by listing: a start believes those of
the checkpoint. Folders that others remove or move do not tell the owner, so its counts
stay wrong until the folders are looked at. That takes long where many are kept, so it is
done beside the owner's work, a piece at a time.

What is compared are two numbers of one moment, the beginning: what was counted then, and
what lay there then. Meanwhile folders come and go, and of those that wait for their move
the place says nothing. `touched` holds these messages with their state at the beginning,
by the journal; all others are where they lay. A thread lists a piece, a turn of the owner
adds it up:

- a message that is touched before its piece is added counts by its state, and not where it
  lies;
- one that is touched after that was added where it lay, which is where it was.

The difference is then added to what is counted by now.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rq.layout import QueueDir
from rq.spool import folders
from rq.spool.folders import Aside
from rq.spool.store import Spool
from rq.words.states import HASHED, State

PIECE = 2000  # messages, or directories, that a thread lists at a time


@dataclass(frozen=True, slots=True)
class Recount:
    """How many messages were counted in a state, and how many there were."""

    state: State
    counted: int
    there: int

    @property
    def is_wrong(self) -> bool:
        return self.counted != self.there

    @property
    def text(self) -> str:
        return f"counted {self.counted}, there are {self.there}"

    @property
    def advice(self) -> str:
        """What was recounted, and what to do."""
        how = "as if others had removed or moved folders"
        return f"{self.text}, {how}: `rq check --fix` counts again"


async def recount(spool: Spool, state: State, aside: Aside) -> Recount:
    """Look how many messages there are in a state in which they have ended; nothing is
    changed. OSError: its directories cannot be read now."""
    touched = {msg_id: entry.state for msg_id, entry in spool.unsettled.items()}
    sums = _Sums(state, touched)
    counted, pieces = spool.counts.of(state), _pieces(spool.queue, state)
    with spool.events.watched_by(touched):
        while (piece := await aside(next, pieces, None)) is not None:
            sums.add(piece)
    sums.add_touched()
    return Recount(state, counted, sums.number)


def believe(spool: Spool, recounted: Recount) -> None:
    """Go on with what there was, in place of what was counted then."""
    number = spool.counts.of(recounted.state) + recounted.there - recounted.counted
    spool.counts.by_state[recounted.state] = number


class _Piece(NamedTuple):
    """What a thread has listed of a state."""

    ids: list[str]
    down_to: str  # later pieces have only messages whose id is less


class _Sums:
    """How many messages were in a state at the beginning, as far as that is added up."""

    def __init__(self, state: State, touched: Mapping[str, State]) -> None:
        """`touched` grows; what it says of a message first, stays."""
        self._state = state
        self._touched = touched
        self.number = 0
        self._taken = 0  # how many of `touched` are added
        self._down_to = "~"  # nothing is added yet: all ids are less

    def add(self, piece: _Piece) -> None:
        self.add_touched()
        self.number += sum(msg_id not in self._touched for msg_id in piece.ids)
        self._down_to = piece.down_to

    def add_touched(self) -> None:
        """Add the messages that were touched since, but those added where they lay."""
        for msg_id, was in itertools.islice(self._touched.items(), self._taken, None):
            self.number += was is self._state and msg_id < self._down_to
        self._taken = len(self._touched)


def _pieces(queue: QueueDir, state: State) -> Iterator[_Piece]:
    """List a state, newest first."""
    if state not in HASHED:
        yield _Piece(folders.list_state(queue, state), "")
        return
    ids: list[str] = []
    for number, path in enumerate(folders.minutes(queue, state), 1):
        ids += folders.in_minute(queue, path)
        if len(ids) >= PIECE or number % PIECE == 0:
            _, date, hour, minute = path.split("/")
            yield _Piece(ids, f"{date}.{hour}{minute}")
            ids = []
    yield _Piece(ids, "")
