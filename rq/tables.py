"""The Delta tables that jobs write, as far as they are known without what reads Delta:
where they lie, whether one has changed, and what `spark.table_facts` says of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rq import names
from rq.errors import BadInput
from rq.layout import Root

ABOVE = "tables"  # directory of `spark/`
LOG = "_delta_log"
STORED = "stored.json"  # in the directory of a table that is in a store: where
TABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_STORE = "s3://"  # how the address of a table in a store begins
_MINUTE = 60
REJECTED = "__rejected"  # how the table of what does not fit another one ends


class Column(TypedDict):
    """A column of a table."""

    column: str
    type: str
    by: bool  # whether it parts the table


class Step(TypedDict):
    """What a version did."""

    version: int
    time: float | None  # None: it says none that can be
    operation: str
    queue: str | None
    batch: str | None
    messages: int | None
    ids: list[str]  # the first of them
    day: str | None  # that was made again, and
    backfill: str | None  # by which command
    rows: int | None  # that came; None: its line of the log is gone
    added: int  # files
    removed: int


class Held(TypedDict):
    """A batch that is decided and not in its tables."""

    queue: str
    key: str
    tables: list[str]  # of Delta
    time: float
    messages: list[str]
    why: str


class Facts(TypedDict):
    """A table; of one that cannot be read only `table` and `why` say something."""

    table: str  # QUEUE/NAME
    why: str
    version: int
    rows: int
    bytes: int
    files: int
    written: float | None  # when its last version was made
    columns: list[Column]
    versions: list[Step]  # the newest first


class Answer(TypedDict):
    """What the program that reads tables says."""

    tables: list[Facts]
    held: list[Held]


@dataclass(frozen=True, slots=True)
class Name:
    """A table of a queue."""

    queue: str
    table: str

    @property
    def text(self) -> str:
        return f"{self.queue}/{self.table}"

    @property
    def rejected(self) -> Name:
        """The table of the rows that do not fit this one."""
        return Name(self.queue, f"{self.table}{REJECTED}")


def name(text: str) -> Name:
    """Return the table that QUEUE/NAME names; BadInput."""
    queue, _, table = text.partition("/")
    if not is_name(queue, table):
        raise BadInput(f"{text!r:.80} names no table: say QUEUE/NAME")
    return Name(queue, table)


def is_name(queue: str, table: str) -> bool:
    """Whether that is a table's name, and so leads to no other place."""
    return names.is_queue_name(queue) and TABLE.fullmatch(table) is not None


def place(root: Root, table: Name) -> Path:
    return root.spark / ABOVE / table.queue / table.table


def stored(root: Root, table: Name) -> str | None:
    """Return the address of a table that was made in a store; None: it was made here, or
    not yet."""
    return stored_for(place(root, table))


def stored_for(place: Path) -> str | None:
    """Return the address of the table whose directory is `place`, as above."""
    try:
        noted = (place / STORED).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{place / STORED}: {error.strerror}") from None
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        where = json.loads(noted)["where"]
        # No directory: with the rights of who looks, any would be read, or written to.
        if isinstance(where, str) and where.startswith(_STORE):
            return where
    raise BadInput(
        f"{place / STORED} is damaged: it says where {place.parent.name}/{place.name} "
        'is, as {"where": "s3://BUCKET/PREFIX/NAME"}'
    )


def is_here(root: Root, table: Name) -> bool:
    """Whether a table was made below the root."""
    return (place(root, table) / LOG).is_dir()


def every(root: Root, queue: str | None = None) -> Iterator[Name]:
    """Give the tables of a root, or of a queue, by name; a copy that a person has put
    beside one, as `orders.bak`, is none."""
    above = root.spark / ABOVE
    signs = {
        *above.glob(f"{queue or '*'}/*/{LOG}"),
        *above.glob(f"{queue or '*'}/*/{STORED}"),
    }
    for place in sorted({sign.parent for sign in signs}):
        if is_name(place.parent.name, place.name):
            yield Name(place.parent.name, place.name)


def are_any(root: Root, queue: str = "") -> bool:
    """Whether a job has written a table, of a queue or of any."""
    return (root.spark / ABOVE / queue).is_dir()


def stamp(root: Root, table: Name) -> tuple[int, int]:
    """Return what changes with each version of a table: names in its log come and go. Of
    one in a store it is when RQ wrote to it, and each minute, for others may have."""
    try:
        log = os.stat(place(root, table) / LOG)
        return (log.st_mtime_ns, log.st_ino)
    except OSError:
        pass
    try:
        noted = os.stat(place(root, table) / STORED)
        return (noted.st_mtime_ns, int(time.time() // _MINUTE))
    except OSError:
        return (0, 0)
