"""All events that are sealed now, as a table: `format("rq")` with `of` = `history`.

Filters on `queue` and `date` choose files by their ends. A segment is sealed at each hour,
also when the clock is set, so its events are of the hours of its first and its last line,
and perhaps of those beside them, for the clock may step back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from rq.journal.segment_file import Segment, read_header
from rq.layout import Root
from rq.spark import folder_rows, journal_plan, journal_source
from rq.spark.folders_plan import Wanted
from rq.spark.journal_plan import Journal
from rq.spark.narrowing import OF_EVENTS, narrowed

SCHEMA = f"{journal_source.SCHEMA}, `date` date"
ARROW_SCHEMA = journal_source.ARROW_SCHEMA.append(pa.field("date", pa.date32()))
_BESIDE = 3600 * 10**6  # µs by which a clock may step without a new segment
_TAIL = 64 * 1024  # bytes of a file in which its last line begins, mostly


class HistoryReader(DataSourceReader):
    """Reads sealed events."""

    def __init__(self, root: str, queue: str | None, counts: str | None) -> None:
        settings = {"root": root, "payload": "keep", "skip_gaps": "true"}
        self._root = Root(Path(root))
        self._queue = queue
        self._counts = counts
        self._events = journal_source.JournalReader(settings)
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        every = journal_plan.look(self._root, self._queue)
        chosen = [_chosen(journal, self._wanted) for journal in every]
        self._count(every, chosen)
        left = [journal for journal in chosen if journal.sealed]
        # What could not be sealed yet keeps nothing back that is.
        end = {journal.journal: journal.sealed[-1].sealed_last for journal in left}
        return journal_source.shares(left, {}, end) or [journal_source.Share(())]

    def _count(self, every: Iterable[Journal], chosen: Iterable[Journal]) -> None:
        listed, files = (sum(len(each.sealed) for each in of) for of in (every, chosen))
        folder_rows.note(self._counts, {"listed": listed, "files": files})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._events.read(partition):
            moments = batch.column("ts").cast(pa.timestamp("us"))
            columns = [*batch.columns, moments.cast(pa.date32())]
            yield pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


class PushingHistoryReader(HistoryReader):
    """As HistoryReader, and files that filters rule out are not read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for condition in filters:
            wanted = narrowed(self._wanted, condition, OF_EVENTS)
            self._wanted = wanted or self._wanted
            yield condition  # of the files that are left Spark looks at each row


# ---- choosing files


def _chosen(journal: Journal, wanted: Wanted) -> Journal:
    """Return a journal without the segments that hold nothing that is wanted."""
    if wanted == Wanted():
        return journal
    kept = [segment for segment in journal.sealed if _may_hold(segment, wanted)]
    return replace(journal, sealed=kept)


def _may_hold(segment: Segment, wanted: Wanted) -> bool:
    """Whether a segment may hold events of a queue and day that are wanted; it is asked
    of its header, where its queue is, and of its last line."""
    header = cast("Mapping[str, object] | None", read_header(segment.path))
    if header is None:
        return True  # who reads it tells what is wrong with it
    if not wanted.has_queue(str(header["queue"])):
        return False
    last = _last_moment(segment.path)
    if last is None:
        return True
    first = int(str(header["ts"]))
    return _has_dates(wanted, min(first, last) - _BESIDE, max(first, last) + _BESIDE)


def _last_moment(path: Path) -> int | None:
    """Return the time of the last line of a file, in µs; None when it is not told."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        lines = file.read().splitlines()
    try:
        line = orjson.loads(lines[-1]) if len(lines) > 1 else None
    except orjson.JSONDecodeError:
        return None
    moment = line.get("ts") if isinstance(line, Mapping) else None
    return moment if isinstance(moment, int) else None


def _has_dates(wanted: Wanted, first: int, last: int) -> bool:
    begin, end = _date(first), _date(last)
    if end < wanted.first or wanted.last < begin:
        return False
    return wanted.dates is None or any(begin <= date <= end for date in wanted.dates)


def _date(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment // 10**6, UTC):%Y%m%d}"
