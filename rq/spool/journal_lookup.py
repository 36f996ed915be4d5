"""What the journal holds of a message whose own file cannot be read any more."""

from __future__ import annotations

import logging
import mmap
import time
from typing import cast

import orjson

from rq.errors import BadMessage
from rq.journal import history, line
from rq.journal.segment_file import Segment, read_header
from rq.layout import QueueDir
from rq.logs import fields
from rq.message import Message, from_disk
from rq.spool.record import Record

_MOST = 8  # segments that are searched: the line that brought it into que is a late one

_log = logging.getLogger(__name__)


def message(queue: QueueDir, journal: str, msg_id: str, upto: int) -> Message | None:
    """Return the last copy of a message in lines up to about `upto` (0: any); None when
    there is none near, or the lines have been removed."""
    try:
        every = history.segments(queue.journal_dir, journal)
        near = [segment for segment in every if not upto or segment.first <= upto]
        for segment in reversed(near[-_MOST:]):
            data = _last_copy(segment, msg_id)
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


def _last_copy(segment: Segment, msg_id: str) -> bytes | None:
    """Return the message in the last whole line of a segment that holds it."""
    header = read_header(segment.path)
    if header is None:
        return None
    start = line.seed_of(header)
    mark = f'"msg":"{msg_id}"'.encode()
    with (
        segment.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at = data.rfind(mark)
        while at >= 0:
            begin = data.rfind(b"\n", 0, at) + 1
            event = line.read(data[begin : data.find(b"\n", at)], start)
            record = cast("Record | None", event)
            if record is not None and "message" in record and record["msg"] == msg_id:
                return orjson.dumps(record["message"])
            at = data.rfind(mark, 0, begin)
    return None
