"""A snapshot of a broker: what lives, in one file, so that the journal before it can go.

The first line is a checkpoint of the journal, and tells from which event on the journal
is to be read. What comes then was written in slices while the broker went on: a line may
tell more than that event knew. As all lines hold absolute values, reading the journal
over it ends right.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from rq.broker.state import lines
from rq.broker.state.body import PlaceOf, no_file
from rq.broker.state.lines import Event
from rq.broker.store.place import ADVICE
from rq.errors import Damaged
from rq.files import durable
from rq.journal import checkpoint, line
from rq.journal.checkpoint import Checkpoint

_SEED = line.seed("", "snapshot")
_SLICE = 0.002  # seconds of the loop
_WHOLE = "whole"  # the last line, with the number of those before it


class Writing:
    """A snapshot on its way to disk, a slice at a time."""

    def __init__(
        self, path: Path, point: Checkpoint, events: Iterator[Iterable[Event]]
    ) -> None:
        self.point = point
        self._path = path
        self._tmp = path.with_name(".snapshot.tmp")
        self._file = self._tmp.open("wb")
        self._file.write(point.encode())
        self._events = chain.from_iterable(events)
        self._written = 0

    def write_slice(self) -> bool:
        """Write lines for a moment; return whether more are left."""
        end = time.monotonic() + _SLICE
        for event in self._events:
            self._file.write(line.sealed(line.body(lines.record(event)), _SEED))
            self._written += 1
            if time.monotonic() >= end:
                return True
        return False

    def finish(self) -> None:
        """Make it the snapshot, durably; OSError: the one before stands. May be called
        in a thread."""
        self._file.write(line.sealed(line.body({_WHOLE: self._written}), _SEED))
        self._file.flush()
        durable.sync_open(self._file.fileno())
        self._file.close()
        durable.crash_point("snapshot:before-rename")
        durable.rename_durable(self._tmp, self._path)
        durable.crash_point("snapshot:renamed")

    def abandon(self) -> None:
        """Leave the one before as it is; what cannot be removed, the next one replaces."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            durable.unlink(os.fspath(self._tmp))


def read(
    path: Path, take: Callable[[Event], None], place_of: PlaceOf = no_file
) -> Checkpoint | None:
    """Give what a snapshot tells to `take`; None when there is none. Damaged: it is not
    whole, and what was taken is of no use. OSError: it cannot be read now."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        point = checkpoint.decode(file.readline())
        if point is None or not _read(file, take, place_of):
            raise Damaged(
                f"{path} is not whole, and the journal before it is gone: {ADVICE}"
            )
        return point


def _read(file: BinaryIO, take: Callable[[Event], None], place_of: PlaceOf) -> bool:
    for count, text in enumerate(file):
        fields = line.read_object(text, _SEED)
        if fields is None:
            return False
        if _WHOLE in fields:
            return fields[_WHOLE] == count
        event = lines.event(fields, place_of)
        if event is not None:
            take(event)
    return False
