"""A search of a queue's journal from its end, for lines of a message or of a kind; a
bounded part of it is read.

Two ask: the end of a message whose own file cannot be read any more, for what that owes;
and the rate of starts at the start of a queue, for when the last claims were.
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import orjson

from rq.errors import BadMessage
from rq.journal import history, line
from rq.journal.segment_file import Segment, read_header
from rq.layout import QueueDir
from rq.logs import fields
from rq.message.message import Message, from_disk
from rq.spool.record import Record
from rq.words.states import Event

MOST_CLAIMS = 100_000
_SEGMENTS = 16  # that are searched for claims
_NEAR = 8  # and for a message: the line that brought it into que is a late one
_DISCARD = f'"ev":"{Event.DISCARD}"'.encode()
_CLAIM = f'"ev":"{Event.CLAIM}"'.encode()

_log = logging.getLogger(__name__)


def _newest_first(segment: Segment, mark: bytes) -> Iterator[Record]:
    """Give the whole lines of a segment that hold `mark`."""
    header = read_header(segment.path)
    if header is None:
        return
    start = line.seed_of(header)
    with (
        segment.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at = data.rfind(mark)
        while at >= 0:
            begin = data.rfind(b"\n", 0, at) + 1
            event = line.read(data[begin : data.find(b"\n", at)], start)
            if event is not None:
                yield cast("Record", event)
            at = data.rfind(mark, 0, begin)


# ---- a message


def last_copy(queue: QueueDir, journal: str, msg_id: str, upto: int) -> Message | None:
    """Return the last copy of a message in lines up to about `upto` (0: any); None when
    there is none near, or the lines have been removed."""
    try:
        every = history.segments(queue.journal_dir, journal)
        near = [segment for segment in every if not upto or segment.first <= upto]
        for segment in reversed(near[-_NEAR:]):
            data = _copy_in(segment, msg_id)
            if data is not None:
                return from_disk(data, msg_id, time.time())
    except OSError as error:
        _log.error(
            "the journal cannot be searched for what a message owes: %s",
            fields(msg_id=msg_id, reason=error),
        )
    except BadMessage:
        return None
    return None


def _copy_in(segment: Segment, msg_id: str) -> bytes | None:
    """Return the message in the last line of a segment that holds it."""
    for record in _newest_first(segment, f'"msg":"{msg_id}"'.encode()):
        if "message" in record and record["msg"] == msg_id:
            return orjson.dumps(record["message"])
    return None


def discards(queue: QueueDir, ids: Iterable[str]) -> dict[str, Record]:
    """Return the lines by which messages were removed that are not there any more, by a
    person or for an equal one; alone, or with others in one line. Of those that have
    expired, or that a hand has removed, there is none. Blocks; OSError: the journal cannot
    be read now."""
    wanted, lines = set(ids), dict[str, Record]()
    for segment in reversed(history.segments(queue.journal_dir)[-_SEGMENTS:]):
        for record in _newest_first(segment, _DISCARD):
            if record["ev"] != Event.DISCARD:
                continue
            of_line = [record["msg"]] if "msg" in record else record.get("msgs", [])
            for msg_id in wanted.intersection(of_line):
                lines[msg_id] = record
                wanted.remove(msg_id)
            if not wanted:
                return lines
    return lines


# ---- claims


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
        for record in _newest_first(segment, _CLAIM):
            if record["ev"] != Event.CLAIM:
                continue
            when = record["ts"] / 1e6
            if when < since or len(at) >= MOST_CLAIMS:
                return Claims(max(since, when), at[::-1])
            at.append(when)
    if not every or (every[0].first == 1 and len(every) <= _SEGMENTS):
        return Claims(None, at[::-1])
    return Claims(max(since, _begin(every[-_SEGMENTS:][0])), at[::-1])


def _begin(segment: Segment) -> float:
    """Return when the first event of a segment was; long ago, if it has none."""
    header = read_header(segment.path)
    with segment.path.open("rb") as file:
        file.readline()
        text = file.readline().rstrip(b"\n")
    event = None if header is None else line.read(text, line.seed_of(header))
    return 0.0 if event is None else event["ts"] / 1e6
