"""`rq` as a stream: the messages of a queue, leased for a query until it has committed.

An offset is the number of a claim. Spark asks for the next one behind what its commit log
holds (test/spark/test_stream_order.py), so all claims up to `start` are finished there.
What is claimed and not committed is read again by the next start of the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rq.message import message
from rq.replies import Grant
from rq.spark import folder_rows
from rq.spark.lease_holder import Holder
from rq.spark.lease_options import Options

Offset = Mapping[str, int]


@dataclass(frozen=True)
class Share(InputPartition):
    """The messages that one task reads: it may run where the queue is not."""

    queue: str
    messages: tuple[bytes, ...]


class LeaseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Leases messages for a query; lives in one process beside the driver."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._opened: Holder | None = None
        self._left: int | None = None  # that a query takes which ends by itself

    @property
    def _holder(self) -> Holder:
        # Spark also makes readers that only read: these must not take the lock.
        if self._opened is None:
            self._opened = Holder(self._options)
        return self._opened

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"claim": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what waits now, though more will come."""
        self._left = self._holder.queue.waiting()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        holder, committed = self._holder, start["claim"]
        holder.settle(committed)
        rows = int(getattr(limit, "max_rows", self._options.rows))
        if self._left is not None:
            rows = min(rows, self._left)
        taken = holder.claim(committed + 1, rows)
        if self._left is not None:
            self._left -= taken.new
        return {"claim": committed + 1} if taken.messages else start

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Tell how far behind the query is: `latestOffset` of its progress."""
        return self._holder.behind()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        grants = [
            grant
            for number in range(start["claim"] + 1, end["claim"] + 1)
            for grant in self._holder.held(number)
        ]
        count = min(self._options.partitions, len(grants)) or 1
        dealt = (grants[first::count] for first in range(count))
        return [
            Share(self._options.queue, tuple(map(_packed, share))) for share in dealt
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        if partition.messages:
            rows = [_row(partition.queue, packed) for packed in partition.messages]
            yield folder_rows.batch(rows)

    def commit(self, end: Offset) -> None:
        self._holder.settle(end["claim"])

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _packed(grant: Grant) -> bytes:
    """Return what a task is told of a message: not the token."""
    about = {file["name"]: dict(file) for file in grant["attachments"]}
    fields = {**grant["message"], "attachments": about}
    return orjson.dumps([grant["msg_id"], fields])


def _row(queue: str, packed: bytes) -> folder_rows.Row:
    msg_id, fields = orjson.loads(packed)
    leased = message.from_disk(orjson.dumps(fields), msg_id, 0.0)
    return folder_rows.leased(queue, leased)
