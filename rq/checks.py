"""What jobs expect of their data, and whether it held: `q.expect` and `q.contract`, batch by
batch, for the pages of tables.

`ROOT/spark/checks/QUEUE.sqlite` has the last of them. It is for people who look back: no job
waits for it to be on disk, or fails since it cannot be written, and after a kill at the end
of a batch those of this batch are missing.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict

from rq.config import files
from rq.errors import Busy
from rq.layout import Root

_KEPT = 5_000  # checks of a queue
_NAMED = 20  # messages of a batch
_LONGEST = 500  # characters of a text
_AHEAD = 86400.0  # seconds by which a clock may be ahead
_PATIENCE = 5.0  # seconds that one writer waits for another
_TABLES = """
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS checks (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, batch TEXT NOT NULL,
    ids TEXT NOT NULL, wrote TEXT NOT NULL,  -- JSON: messages; tables
    kind TEXT NOT NULL, name TEXT NOT NULL, holds INTEGER NOT NULL, text TEXT NOT NULL
);
"""


class Kind(StrEnum):
    """Who expects something."""

    EXPECT = "expect"
    CONTRACT = "contract"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was expected once, and whether it held."""

    kind: Kind
    text: str
    holds: bool
    table: str = ""  # of a contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch whose data that was."""

    batch_id: str
    time: float
    ids: Sequence[str]
    wrote: Sequence[str]  # tables; none is known when it has failed early


class CheckView(TypedDict):
    """A check, for people."""

    number: int
    time: float
    batch: str
    ids: list[str]
    kind: str
    holds: bool
    text: str


class Checks:
    """The checks of the jobs of one queue."""

    def __init__(self, root: Root, queue: str) -> None:
        self._file = root.spark / "checks" / f"{queue}.sqlite"

    def add(self, batch: Batch, checks: Sequence[Check]) -> None:
        """Keep what was checked of a batch; Busy."""
        files.make_dir(self._file.parent)
        ids, wrote = json.dumps(list(batch.ids[:_NAMED])), json.dumps([*batch.wrote])
        rows = [
            (batch.time, batch.batch_id, ids, wrote,
             str(c.kind), c.table, c.holds, _storable(c.text))
            for c in checks
        ]  # fmt: skip
        with self._opened("rwc") as db:
            db.executescript(_TABLES)
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO checks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            db.execute(
                "DELETE FROM checks WHERE number <= (SELECT max(number) FROM checks) - ?",
                (_KEPT,),
            )
            db.execute("COMMIT")

    def of_table(self, table: str, most: int) -> list[CheckView]:
        """Return the last checks of a table, the newest first: its contracts, and what was
        expected in batches that have written it, or have failed before they wrote any.
        Busy."""
        if not self._file.exists():
            return []
        with self._opened("ro") as db:
            rows = db.execute(
                "SELECT number, at, batch, ids, kind, holds, text FROM checks WHERE name = ?1"
                " OR (name = '' AND (wrote = '[]' OR EXISTS"
                " (SELECT 1 FROM json_each(wrote) WHERE value = ?1)))"
                " ORDER BY number DESC LIMIT ?2",
                (table, most),
            ).fetchall()
        try:
            return [_view(row) for row in rows]
        except (ValueError, TypeError) as error:  # the code of a job can write there
            raise Busy(f"{self._file}: {error}") from error

    @contextlib.contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"{self._file.absolute().as_uri()}?mode={mode}"
        try:
            db = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
            with contextlib.closing(db):
                yield db
        except sqlite3.Error as error:  # in use, a full disk, or damaged
            raise Busy(f"{self._file}: {error}") from error


def _storable(text: str) -> str:
    return text[:_LONGEST].encode("utf-8", "replace").decode()


def _view(row: Sequence[Any]) -> CheckView:
    number, at, batch, ids, kind, holds, text = row
    return {
        "number": int(number),
        "time": min(max(float(at), 0.0), time.time() + _AHEAD),
        "batch": str(batch),
        "ids": [str(msg_id)[:_LONGEST] for msg_id in list(json.loads(ids))[:_NAMED]],
        "kind": str(kind),
        "holds": bool(holds),
        "text": str(text)[:_LONGEST],
    }
