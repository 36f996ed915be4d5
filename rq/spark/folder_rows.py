"""Message folders as rows: what lies in `msg` and `status`, and what is wrong with it.

A folder that moved on since it was listed is skipped, as is one that cannot be read; both
are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import orjson
import pyarrow as pa

from rq import names
from rq.errors import BadMessage
from rq.files import beneath
from rq.layout import MSG
from rq.message.fields import param_text
from rq.message.message import Message, from_disk
from rq.message.table import PARAMS
from rq.replies import Result
from rq.spark.folders_plan import Leaf, Wanted
from rq.spool import folders
from rq.words.states import State

_ARROW_ROWS = 4096

# Only ever added to: queries name them.
COLUMNS: tuple[tuple[str, str], ...] = (
    ("queue", "string"),
    ("state", "string"),
    ("date", "date"),  # UTC, of the id
    ("msg_id", "string"),
    ("created", "timestamp"),  # by the id
    ("due", "timestamp"),
    ("count", "int"),
    ("max_count", "int"),
    ("attempt", "int"),
    ("dest", "string"),
    ("src", "string"),
    *((name, "string") for name in PARAMS),
    ("orig_msg_id", "string"),
    ("attachments", "array<string>"),
    ("extra", "string"),  # JSON of every other field
    ("status", "string"),  # the text of its last attempt
    ("cause", "string"),
    ("outcome", "string"),
    ("wait_us", "bigint"),
    ("run_us", "bigint"),
    ("finished", "timestamp"),
    ("problem", "string"),  # why it cannot be read; else null
)
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
_ARROW = {
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "array<string>": pa.list_(pa.field("element", pa.string())),
}
ARROW_SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS])

Row = tuple[object, ...]


@dataclass(slots=True)
class Counted:
    """What became of the folders that were listed."""

    read: int = 0
    moved: int = 0  # gone, or half made, when they were opened
    malformed: int = 0

    def to_json(self) -> dict[str, int]:
        return {"read": self.read, "moved": self.moved, "malformed": self.malformed}


def note(counts: str | None, numbers: Mapping[str, int]) -> None:
    """Write what was done into the file that the option `counts` names, if it does."""
    if counts:
        with Path(counts).open("ab", buffering=0) as file:
            file.write(orjson.dumps(numbers) + b"\n")


@dataclass(frozen=True, slots=True)
class Reading:
    """How folders are read."""

    wanted: Wanted
    status: bool = True  # the file `status` is read, too
    keep_bad: bool = False  # the malformed are rows with a `problem`


def batches(
    leaves: list[Leaf], reading: Reading, counted: Counted
) -> Iterator[pa.RecordBatch]:
    """Give the messages in some directories, a few thousand a batch."""
    held: list[Row] = []
    for leaf in leaves:
        for row in _rows(leaf, reading, counted):
            held.append(row)
            if len(held) == _ARROW_ROWS:
                yield batch(held)
                held = []
    if held:
        yield batch(held)


def leased(queue: str, message: Message) -> Row:
    """Return the row of a message that is worked on under a lease."""
    leaf = queue, State.RUN, _date(message.msg_id), message.msg_id
    created = _micros(names.created(message.msg_id)) or None
    return (*leaf, created, *_of_message(message), *_of_status({}), None)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(columns, ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _rows(leaf: Leaf, reading: Reading, counted: Counted) -> Iterator[Row]:
    dot = "." if leaf.state == State.DISMISSED else ""
    for msg_id in leaf.names(reading.wanted):
        path = f"{dot}{msg_id}"
        try:
            with beneath.top(leaf.path) as top:
                row = _row(leaf, msg_id, path, top, reading.status)
        except FileNotFoundError:
            counted.moved += 1
            continue
        except (BadMessage, OSError, UnicodeEncodeError) as error:
            counted.malformed += 1
            if reading.keep_bad:
                yield _bad(leaf, msg_id, str(error))
            continue
        counted.read += 1
        yield row


def _row(leaf: Leaf, msg_id: str, path: str, top: int, with_status: bool) -> Row:
    data = folders.read_file(f"{path}/{MSG}", top)
    message = from_disk(data, msg_id, 0.0)
    status = folders.read_status_at(path, top) if with_status else {}
    return (*_head(leaf, msg_id), *_of_message(message), *_of_status(status), None)


def _head(leaf: Leaf, msg_id: str) -> Row:
    created = _micros(names.created(msg_id)) or None
    return leaf.queue, leaf.state, _date(msg_id), msg_id, created


def _bad(leaf: Leaf, msg_id: str, problem: str) -> Row:
    row = [*_head(leaf, msg_id), *[None] * len(COLUMNS)][: len(COLUMNS)]
    row[-1] = problem
    return tuple(row)


def _of_message(message: Message) -> Row:
    params = message.params
    return (
        _micros(message.due),
        message.count,
        message.max_count,
        message.attempt,
        message.dest,
        message.src,
        *[param_text(params[name]) if name in params else None for name in PARAMS],
        message.orig_msg_id,
        sorted(message.attachments) if message.attachments else None,
        orjson.dumps(message.extra).decode() if message.extra else None,
    )


def _of_status(status: Result) -> Row:
    if not status:
        return (None,) * 6
    finished = status.get("finished")
    return (
        status.get("job_status"),
        status.get("cause"),
        status.get("outcome"),
        status.get("wait_us"),
        status.get("run_us"),
        None if finished is None else _micros(finished),
    )


def _micros(seconds: float) -> int:
    return int(seconds * 1e6)


def _date(msg_id: str) -> date | None:
    try:
        return date(int(msg_id[:4]), int(msg_id[4:6]), int(msg_id[6:8]))
    except ValueError:
        return None  # a foreign id that is no date
