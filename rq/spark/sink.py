"""Rows become messages of a queue, all of a job or none: prepared by tasks, accepted by
one commit of the driver. What a task has beyond a few thousand it hands in as rows, which
wait as lines of files, and become messages when there is room.

Options: `queue`; `url` (`http://[USER:PASSWORD@]HOST:PORT/`, the web of RQ) or `root`
(on RQ's own host, without the web); `key` (of a job that may run again: it is sent
once); `extra` (columns that are no fields, by comma); `ttl` and `timeout` in seconds.
Columns are fields of messages, nulls are not set.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import cast

import orjson
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from rq import config, names
from rq.errors import BadInput, Refused, WrongState
from rq.message.table import FIELDS, STEERING
from rq.spark.queue_door import Door, Request, Target
from rq.words import visible
from rq.words.nesting import Json

_AT_ONCE = 500  # messages of a request
_PREPARED = 2000  # messages of a task; what is beyond is rows, where they are taken
_ROWS = 5000  # of a request
_REQUEST = 1024 * 1024  # bytes of it, about
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
COMMITTED, OPEN = "committed", "open"


@dataclass(frozen=True)
class Prepared(WriterCommitMessage):
    """What one task has prepared; `sent`: the whole job had been accepted before."""

    txn: str
    ids: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()  # further transactions, whose messages are chosen
    rows: tuple[str, ...] = ()  # files of them
    sent: bool = False


class QueueWriter(DataSourceWriter):
    """Writes the rows of one job."""

    def __init__(self, target: Target) -> None:
        self._target = target
        with closing(Door(target)) as door:
            view = door.open(target.key or f"spark/{uuid.uuid4().hex}")
        self._txn, self._sent = view["txn"], view["state"] == COMMITTED
        self._takes_rows = view.get("takes_rows", False)

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        if self._sent:
            return Prepared(self._txn, sent=True)
        with closing(Door(self._target)) as door:
            return _prepare(door, self._txn, iterator, self._takes_rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._sent:
            with closing(Door(self._target)) as door:
                door.abort(self._txn)


class QueueStreamWriter(DataSourceStreamWriter):
    """Writes the rows of the batches of a query, each batch once.

    Spark makes it again for each call and names the query in tasks only, so they open the
    transaction of their batch, all the same one.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        with closing(Door(self._target)) as door:
            view = door.open(_batch_key())
            if view["state"] == COMMITTED:
                return Prepared(view["txn"], sent=True)
            takes_rows = view.get("takes_rows", False)
            return _prepare(door, view["txn"], iterator, takes_rows)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        _commit(self._target, messages)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        with closing(Door(self._target)) as door:
            for txn in {part.txn for part in _prepared(messages) if not part.sent}:
                door.abort(txn)


def _batch_key() -> str:
    task = TaskContext.get()
    query = task.getLocalProperty(_QUERY) if task else None
    batch = task.getLocalProperty(_BATCH) if task else None
    if not query or batch is None:
        raise Refused("this Spark does not tell its tasks the query and the batch")
    return f"spark/{query}/{batch}"


def _prepare(
    door: Door, txn: str, rows: Iterator[Row], takes_rows: bool = False
) -> Prepared:
    messages = (message_of(row) for row in rows)
    filling = _Filling(door, txn, takes_rows)
    try:
        most = _PREPARED if takes_rows else None
        for request in requests(islice(messages, most)):
            filling.add(request)
        for request in requests(messages, _ROWS):
            filling.add_rows(request)
        filling.choose()
    except WrongState:
        # Another attempt of this job was faster: its rows are those that count.
        if door.show(txn)["state"] != COMMITTED:
            raise
        return Prepared(txn, sent=True)
    return Prepared(
        txn, tuple(filling.of_first), tuple(filling.chain), tuple(filling.files)
    )


class _Filling:
    """The rows of a task: they go into the transaction of all tasks, and when that is full
    into others that are decided with it."""

    def __init__(self, door: Door, first: str, takes_rows: bool = False) -> None:
        self._door = door
        self._takes_rows = takes_rows
        self.files: list[str] = []  # of rows
        self._first = self._now = first
        self.of_first: list[str] = []
        self._ids = self.of_first  # of what is filled now
        self.chain: list[str] = []

    def add(self, request: list[Request]) -> None:
        """Prepare some messages; WrongState when the job is decided."""
        try:
            self._ids += self._door.prepare(self._now, request)
        except WrongState:
            if self._door.show(self._first)["state"] == COMMITTED:
                raise
            self._next()
            self._ids += self._door.prepare(self._now, request)

    def add_rows(self, request: list[Request]) -> None:
        """Hand in some messages as rows; where they cannot be rows, prepare them."""
        if self._takes_rows and not any(STEERING & row.keys() for row in request):
            try:
                self.files.append(self._door.add_rows(self._first, request))
            except WrongState:  # it has as many files as it may, or is decided
                self._takes_rows = False
            else:
                return
        for at in range(0, len(request), _AT_ONCE):
            self.add(request[at : at + _AT_ONCE])

    def _next(self) -> None:
        self.choose()
        self._now = self._door.open_of(self._first)["txn"]
        self._ids = []

    def choose(self) -> None:
        """Let what is filled now wait for the commit of the first."""
        if self._now != self._first:
            self._door.commit(self._now, self._ids)
            self.chain.append(self._now)


def requests(
    messages: Iterator[Request], most: int = _AT_ONCE
) -> Iterator[list[Request]]:
    """Cut messages into what one request can hold."""
    while taken := list(islice(messages, most)):
        if len(orjson.dumps(taken)) <= _REQUEST:
            yield taken
            continue
        at = size = 0
        for here, message in enumerate(taken):
            length = len(orjson.dumps(message))
            if size and size + length > _REQUEST:
                yield taken[at:here]
                at, size = here, 0
            size += length
        yield taken[at:]


def _commit(
    target: Target,
    messages: list[WriterCommitMessage | None],
) -> None:
    parts = _prepared(messages)
    if not parts or any(part.sent for part in parts):
        return
    ids = [msg_id for part in parts for msg_id in part.ids]
    chain = [txn for part in parts for txn in part.chain]
    rows = [file for part in parts for file in part.rows]
    with closing(Door(target)) as door:
        door.commit(parts[0].txn, ids, chain, rows)


def _prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    return [message for message in messages if isinstance(message, Prepared)]


# ---- rows


def message_of(row: Row) -> Request:
    """Return the message that a row stands for."""
    fields = row.asDict(recursive=True)
    return {k: _value(value) for k, value in fields.items() if value is not None}


def _value(value: object) -> Json:
    """Return a value as JSON has it: moments as epoch seconds, the rest as text."""
    match value:
        case datetime.datetime():
            return value.timestamp()
        case dict():
            return {str(name): _value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_value(inner) for inner in value]
        case bytes() | bytearray():
            raise BadInput(
                "a column holds bytes, which JSON cannot: encode them (base64)"
            )
        case datetime.date() | decimal.Decimal():
            return str(value)
    return cast(Json, value)  # orjson says so if it is something else


# ---- options


def target(options: Mapping[str, str]) -> Target:
    """Return where options say that rows go; BadInput names what is missing."""
    queue = options.get("queue")
    if not queue or not names.is_queue_name(queue):
        raise BadInput(f"queue: {queue!r:.60} is not the name of a queue")
    url = options.get("url")
    if url is not None and not names.is_remote(url):
        raise BadInput("url: it is not http://HOST:PORT/ or https://HOST/")
    root = None if url else str(config.find_root(options.get("root")).path)
    return Target(
        queue=queue,
        url=url,
        root=root,
        key=options.get("key"),
        ttl=_seconds(options, "ttl", 3600.0),
        timeout=_seconds(options, "timeout", 60.0),
    )


def check_columns(columns: Iterable[str], options: Mapping[str, str]) -> None:
    """Raise BadInput for a column that is no field of a message, unless the option
    `extra` names it: an option that is not read is a mistake."""
    extra = {name.strip() for name in options.get("extra", "").split(",")}
    strange = [n for n in columns if n not in FIELDS and n not in extra]
    if strange:
        these, named = (visible.line(by.join(strange)) for by in (", ", ","))
        raise BadInput(
            f"no field of a message: {these:.200}; rename or drop them, or say "
            f'option("extra", "{named:.200}") if a script reads them'
        )


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name)
    try:
        return default if text is None else float(text)
    except ValueError:
        raise BadInput(f"{name}: {text!r:.60} is not a number of seconds") from None
