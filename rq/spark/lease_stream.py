"""`rq` as a stream: the messages of a queue, leased for a query until it has committed.

An offset is the number of a claim. Spark asks for the next one behind what its commit log
holds (test/spark/test_stream_order.py), so all claims up to `start` are finished there.
What is claimed and not committed is read again by the next start of the query.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rq import config, message, names
from rq.errors import BadInput, RQError
from rq.layout import Root
from rq.replies import Grant
from rq.spark import folder_rows
from rq.spark.lease_claims import Claim, Claims
from rq.spark.lease_queue import LeaseQueue

ROWS, MOST_ROWS = 1000, 100_000  # of a batch
SECONDS, LONGEST = 600.0, 86_400.0
Offset = Mapping[str, int]


# ---- options


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a stream, checked."""

    root: str
    queue: str
    claims: str
    rows: int
    seconds: float
    partitions: int
    label: str
    timeout: float


def parse_options(options: Mapping[str, str]) -> Options:
    """Return what options ask for; BadInput names the wrong one."""
    queue, claims = options.get("queue", ""), options.get("claims", "")
    if not names.is_queue_name(queue):
        raise BadInput(f"queue: {queue!r:.60} is not the name of a queue")
    if not claims.startswith("/"):
        raise BadInput(
            "claims: name a directory of this query's own by its whole path, say one in "
            "its checkpointLocation"
        )
    return Options(
        root=str(config.find_root(options.get("root")).path),
        queue=queue,
        claims=claims,
        rows=int(_number(options, "rows", ROWS, MOST_ROWS)),
        seconds=_number(options, "seconds", SECONDS, LONGEST),
        partitions=int(_number(options, "partitions", 2, 10_000)),
        label=options.get("label", "spark"),
        timeout=_number(options, "timeout", 60.0, LONGEST),
    )


def _number(
    options: Mapping[str, str], name: str, default: float, most: float
) -> float:
    text = options.get(name, f"{default}")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= most:
        raise BadInput(f"{name}: {text!r:.60} is not a number from 1 to {most:.0f}")
    return value


# ---- the reader


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


# ---- what is held


@dataclass(frozen=True, slots=True)
class Taken:
    """How many messages a claim has, and how many of them are new."""

    messages: int
    new: int


class Holder:
    """Holds the leases of a stream, and renews them as long as it lives."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._claims = Claims(Path(options.claims))
        self.queue = _queue(options)
        self._stopped = threading.Event()
        self._renewing = threading.Thread(target=self._renew_all, daemon=True)
        self._renewing.start()

    def close(self) -> None:
        """Leave what is not committed to the next start of the query."""
        self._stopped.set()
        self._renewing.join()
        self.queue.close()
        self._claims.close()

    def settle(self, committed: int) -> None:
        """Finish all claims that Spark has committed, and give back those that it does
        not know, of a checkpoint that was removed."""
        for number in self._claims.numbers():
            if number == committed + 1:
                continue
            claim = self._claims.read(number)
            assert claim is not None, "nobody else removes claims"
            if number <= committed:
                self._tell_lost(self.queue.finish(claim.tokens), "committed")
            else:
                self.queue.release(claim.tokens)
            self._claims.remove(number)

    def claim(self, number: int, rows: int) -> Taken:
        """Have a claim of this number: that of before, or else of what is due now."""
        if held := self.held(number):
            return Taken(len(held), 0)
        grants = self._lease(number, rows)
        if grants:
            self._claims.write(Claim(number, grants))
        return Taken(len(self.held(number)), len(grants))

    def _lease(self, number: int, rows: int) -> list[Grant]:
        grants: list[Grant] = []
        while len(grants) < rows:
            request = f"{self._claims.stream}/{number}/{len(grants)}"
            more = self.queue.lease(rows - len(grants), self._options.seconds, request)
            if not more:
                break
            grants += more
        return grants

    def held(self, number: int) -> Sequence[Grant]:
        """Return the messages of a claim whose leases still hold: others may work on the
        rest by now, so it is in no batch any more, and in a later one again."""
        claim = self._claims.read(number)
        if claim is None:
            return []
        over = self.queue.start(claim.tokens)
        if over:
            self._tell_lost(over, "read again later")
            left = [grant for grant in claim.grants if grant["token"] not in over]
            claim = Claim(number, left)
            self._claims.write(claim)
        return claim.grants

    def _tell_lost(self, over: Mapping[str, str], what: str) -> None:
        for text in over.values():
            print(f"rq: a lease was lost ({what}): {text}", file=sys.stderr)  # noqa: T201

    def _renew_all(self) -> None:
        """Renew all leases three times in their length. What is over is told when Spark
        asks for it."""
        queue = _queue(self._options)
        while not self._stopped.wait(self._options.seconds / 3):
            try:
                for number in self._claims.numbers():
                    claim = self._claims.read(number)
                    queue.renew(claim.tokens if claim is not None else [])
            except RQError as error:
                print(f"rq: leases are not renewed: {error}", file=sys.stderr)  # noqa: T201
        queue.close()


def _queue(options: Options) -> LeaseQueue:
    socket = Root(Path(options.root)).queue(options.queue).socket
    return LeaseQueue(socket, options.label, options.timeout)
