"""When the last claims were, as the journal tells; a bounded part of it is read."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

from rq.journal import history, line
from rq.journal.segment_file import Segment, read_header
from rq.layout import QueueDir
from rq.states import Event

MOST = 100_000  # claims
_SEGMENTS = 16
_CLAIM = f'"ev":"{Event.CLAIM}"'.encode()


class Claims(NamedTuple):
    """Claims of the past."""

    since: float | None  # all from then on are there; None: all that ever were
    at: list[float]  # epoch seconds, the first first


def claims(queue: QueueDir, journal: str, since: float) -> Claims:
    """Return the claims since then, in epoch seconds, or of a shorter time if there are
    very many. Blocks; OSError: they cannot be read now."""
    every = history.segments(queue.journal_dir, journal)
    at: list[float] = []
    for segment in reversed(every[-_SEGMENTS:]):
        for when in _newest_first(segment):
            if when < since or len(at) >= MOST:
                return Claims(max(since, when), at[::-1])
            at.append(when)
    if not every or (every[0].first == 1 and len(every) <= _SEGMENTS):
        return Claims(None, at[::-1])
    return Claims(max(since, _begin(every[-_SEGMENTS:][0])), at[::-1])


def _newest_first(segment: Segment) -> Iterator[float]:
    """Give when the claims of a segment were."""
    header = read_header(segment.path)
    if header is None:
        return
    start = line.seed_of(header)
    with (
        segment.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        end = data.rfind(_CLAIM)
        while end >= 0:
            begin = data.rfind(b"\n", 0, end) + 1
            event = line.read(data[begin : data.find(b"\n", end)], start)
            if event is not None and event["ev"] == Event.CLAIM:
                yield event["ts"] / 1e6
            end = data.rfind(_CLAIM, 0, begin)


def _begin(segment: Segment) -> float:
    """Return when the first event of a segment was; long ago, if it has none."""
    header = read_header(segment.path)
    with segment.path.open("rb") as file:
        file.readline()
        text = file.readline().rstrip(b"\n")
    event = None if header is None else line.read(text, line.seed_of(header))
    return 0.0 if event is None else event["ts"] / 1e6
