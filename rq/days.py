"""The days of the tables that a queue's jobs write: what each is made of, and how it stands.

A table that is parted by a column of dates (`q.write(…, by="day")`) has directories such as
`day=2026-11-01`. `ROOT/spark/days/QUEUE.sqlite` says of each day which batches have put rows
into it, of which messages these were, all of them, and by which script. It is written when a
decision is carried out, before this counts as done: a decision that is finished once more
after a kill notes the same rows again. Nothing here needs Spark or Java.

A day is run again from the batches that it is made of (`spark.again`), under a lock of its own.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

from rq.config import files
from rq.errors import Busy, Damaged
from rq.layout import QueueDir, Root
from rq.proc import locks
from rq.words.states import State
from rq.words.wording import several

KEPT = (
    State.DONE,
    State.RELAYED,
)  # where the messages of a batch lie that were written
_DAY = re.compile(r"(?:^|/)[^/=]+=(\d{4}-\d\d-\d\d)(?=/|$)")
_PATIENCE = 30.0  # seconds that one writer waits for another
_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    name TEXT PRIMARY KEY, decided REAL NOT NULL, script TEXT NOT NULL,
    calls TEXT NOT NULL  -- JSON: the ids of each call of the job
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (
    day TEXT NOT NULL, place TEXT NOT NULL, manifest TEXT NOT NULL, batch TEXT NOT NULL,
    rows INTEGER NOT NULL, PRIMARY KEY (day, place, manifest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    day TEXT PRIMARY KEY, state TEXT NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS wanted (day TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cancels (number INTEGER PRIMARY KEY);
"""


class Standing(StrEnum):
    """How a day stands."""

    DONE = "done"  # by the script as it is
    RUNNING = "running"  # it is being made again
    FAILED = "failed"  # when it was made again last; its rows are as before
    STALE = "stale"  # the script is another by now
    UNAVAILABLE = "unavailable"  # stale or failed, and messages of it are gone
    MISSING = "missing"  # no batch has put a row into it


class DayView(TypedDict):
    """A day, for people."""

    day: str
    state: str
    why: str
    batches: int
    messages: int
    rows: int
    gone: int  # messages that cannot be read any more, as far as was looked


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one batch at one place."""

    day: str
    place: str
    manifest: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as its decision tells of it; `groups`: the messages of each call."""

    name: str
    decided: float
    script: str
    groups: Sequence[Sequence[str]]
    parts: Sequence[Part] = ()

    @property
    def messages(self) -> list[str]:
        return [msg_id for group in self.groups for msg_id in group]


def day_of(folder: str) -> str:
    """Return the day that the directory of a file names; "" if it names none.

    >>> day_of("host=a/day=2026-11-01"), day_of("host=a")
    ('2026-11-01', '')
    """
    match = _DAY.search(folder)
    return match[1] if match else ""


def digest(script: Path) -> str:
    """Return what tells one text of a script, and of the modules beside it that it imports,
    from another; "" if it cannot be read."""
    try:
        text = script.read_bytes()
        modules = _beside(script.resolve().parent, text)
        each = [path.read_bytes() for path in modules]
    except OSError:
        return ""
    parts = [text, *(hashlib.sha256(module).digest() for module in each)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _beside(directory: Path, text: bytes) -> list[Path]:
    """Return the files in a directory that a script imports, or that these import, in an
    order that does not depend on their texts."""
    modules, todo = set[Path](), [text]
    while todo:
        for name in _imported(todo.pop()):
            new = {*_files_of(directory, name)} - modules
            modules |= new
            todo += [path.read_bytes() for path in new]
    return sorted(modules)


def _imported(text: bytes) -> set[str]:
    """Return the first names of all modules that a text imports, wherever in it."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):  # it is no Python
        return set()
    names = {
        each.name
        for node in nodes
        if isinstance(node, ast.Import)
        for each in node.names
    }
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def _files_of(directory: Path, name: str) -> Iterator[Path]:
    """Give the file of a module, or all of a package."""
    if not name.isidentifier():  # `from . import x` names none
        return
    if (module := directory / f"{name}.py").is_file():
        yield module
    if (directory / name).is_dir():
        yield from (directory / name).rglob("*.py")


def between(first: str, last: str) -> list[str]:
    """Return all days from one to another."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return [f"{begin + timedelta(days=n)}" for n in range((end - begin).days + 1)]


class Days:
    """The days of one queue."""

    def __init__(self, root: Root, queue: str) -> None:
        self._above = root.spark / "days"
        self._file = self._above / f"{queue}.sqlite"
        self._queue = root.queue(queue)

    @property
    def there(self) -> bool:
        """Whether a batch has ever put rows into a day."""
        return self._file.exists()

    # ---- what decisions say

    def note(
        self,
        batch: Batch,
        instead: str = "",
        gone: Iterable[tuple[str, str]] = (),
        replaced: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Note a batch that was carried out; as the day `instead`, it stands for those
        of its parts that are `gone`, by place and manifest. `replaced`: days, by place,
        of which nothing from before it is left."""
        with self._writing() as db:
            for day, place in replaced:
                earlier = "SELECT name FROM batches WHERE decided < ?"
                where = f"day = ? AND place = ? AND batch IN ({earlier})"
                db.execute(
                    f"DELETE FROM parts WHERE {where}", (day, place, batch.decided)
                )
            for place, manifest in gone:
                where = "day = ? AND place = ? AND manifest = ?"
                db.execute(
                    f"DELETE FROM parts WHERE {where}", (instead, place, manifest)
                )
            row = (batch.name, batch.decided, batch.script, json.dumps(batch.groups))
            added = db.execute("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?)", row)
            if (
                instead and added.rowcount
            ):  # also of a process that was killed, or failed
                rows = sum(part.rows for part in batch.parts)
                _say(db, instead, Standing.DONE, several(rows, "row"))
            # What is noted once more may have been replaced since then.
            for part in batch.parts if added.rowcount else ():
                values = (part.day, part.place, part.manifest, batch.name, part.rows)
                db.execute(
                    "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?)", values
                )

    def mark(self, marks: Mapping[str, float]) -> None:
        """Note up to when increments were taken, by their names."""
        with self._writing() as db:
            rows = list(marks.items())
            # The later one holds: an earlier decision may be carried out once more.
            query = (
                "INSERT INTO marks VALUES (?, ?) ON CONFLICT (name)"
                " DO UPDATE SET until = max(until, excluded.until)"
            )
            db.executemany(query, rows)

    def marked(self, name: str) -> float | None:
        """Return up to when an increment was taken last, in epoch seconds."""
        if not self.there:
            return None
        with self._writing() as db:  # it may be a file of before there were marks
            query = "SELECT until FROM marks WHERE name = ?"
            row = db.execute(query, (name,)).fetchone()
        return float(row[0]) if row else None

    def lock_mark(self, name: str) -> int:
        """Hold an increment, waiting for the batch that takes one now."""
        files.make_dir(self._above / self._queue.name)
        return locks.lock_waiting(self._above / self._queue.name / f"{name}.mark")

    def expect(self, key: str) -> None:
        """Note durably that something is about to be decided that replaces files."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO pending VALUES (?)", (key,))

    def expected(self) -> list[str]:
        """Return what may be decided and not carried out."""
        if not self.there:
            return []
        with self._reading() as db:
            return [key for (key,) in db.execute("SELECT key FROM pending")]

    def settle(self, key: str) -> None:
        """Forget what was carried out, or never decided."""
        with self._writing() as db:
            db.execute("DELETE FROM pending WHERE key = ?", (key,))

    # ---- days that are made again

    def lock(self, day: str) -> int | None:
        """Hold a day; None if another process does."""
        files.make_dir(self._above / self._queue.name)
        return locks.lock(self._lock(day))

    def _lock(self, day: str) -> Path:
        return self._above / self._queue.name / f"{day}.lock"

    def lock_files(self) -> int:
        """Hold the manifests of this queue: two days may be in one of them."""
        files.make_dir(self._above / self._queue.name)
        return locks.lock_waiting(self._above / self._queue.name / "files.lock")

    def say(self, day: str, state: Standing, text: str) -> None:
        """Note how a day that is made again stands."""
        with self._writing() as db:
            _say(db, day, state, text)

    def want(self, wanted: Iterable[str]) -> None:
        """Note days that shall be made again although they are done."""
        with self._writing() as db:
            rows = [(day,) for day in wanted]
            db.executemany("INSERT OR REPLACE INTO wanted VALUES (?)", rows)

    def wanted(self) -> set[str]:
        """Return those of these that have not been made again yet."""
        if not self.there:
            return set()
        with self._reading() as db:
            return {day for (day,) in db.execute("SELECT day FROM wanted")}

    def cancel(self) -> list[str]:
        """Let all commands end that make days again now, and forget what `want` noted;
        return the days that are being made."""
        running = self.running() if self.there else []
        if self.there:
            with self._writing() as db:
                db.execute("INSERT INTO cancels VALUES (NULL)")
                db.execute("DELETE FROM wanted")
        return running

    def cancels(self) -> int:
        """Return how often that was said, by which who began before it tells."""
        with self._writing() as db:  # it may be a file of before that could be said
            [number] = db.execute(
                "SELECT coalesce(max(number), 0) FROM cancels"
            ).fetchone()
        return int(number)

    def running(self) -> list[str]:
        """Return the days that are being made again now."""
        with self._reading() as db:
            query = "SELECT day FROM runs WHERE state = ? ORDER BY day"
            rows = db.execute(query, (str(Standing.RUNNING),)).fetchall()
        return [day for (day,) in rows if locks.is_locked(self._lock(day))]

    # ---- asking

    def span(self) -> tuple[str, str] | None:
        """Return the first and the last day that have rows."""
        if not self.there:
            return None
        query = "SELECT min(day), max(day) FROM parts WHERE day != ''"
        with self._reading() as db:
            first, last = db.execute(query).fetchone()
        return (first, last) if first else None

    def inputs(self, day: str) -> list[Batch]:
        """Return the batches that a day is made of, the oldest first."""
        if not self.there:
            return []
        with self._reading() as db:
            rows = db.execute(
                "SELECT name, decided, script, calls, place, manifest, rows FROM parts"
                " JOIN batches ON batch = name WHERE day = ? ORDER BY decided, name",
                (day,),
            ).fetchall()
        parts: dict[str, list[Part]] = {}
        for name, *_, place, manifest, count in rows:
            part = Part(day=day, place=place, manifest=manifest, rows=count)
            parts.setdefault(name, []).append(part)
        return [
            Batch(name=name, decided=decided, script=script, groups=json.loads(groups),
                  parts=parts[name])
            for name, (decided, script, groups) in {r[0]: r[1:4] for r in rows}.items()
        ]  # fmt: skip

    def views(self, every: Sequence[str], script: str, most: int) -> list[DayView]:
        """Return how days stand if the script is this one; at most so many messages are
        looked for."""
        views, left = [], most
        for day in every:
            batches = self.inputs(day)
            view, looked = self._view(day, batches, script, left)
            left -= looked
            views.append(view)
        return views

    def _view(
        self, day: str, batches: Sequence[Batch], script: str, most: int
    ) -> tuple[DayView, int]:
        state, why = self._state(day, batches, script)
        ids = {msg_id for batch in batches for msg_id in batch.messages}
        looks = sorted(ids)[: max(most, 0)] if state in TO_MAKE else []
        gone = sum(kept(self._queue, msg_id) is None for msg_id in looks)
        if gone:
            state = Standing.UNAVAILABLE
            are = "is" if gone == 1 else "are"
            why = f"{gone:,} of its {several(len(ids), 'message')} {are} gone"
        view: DayView = {
            "day": day,
            "state": str(state),
            "why": why,
            "batches": len(batches),
            "messages": len(ids),
            "rows": sum(part.rows for batch in batches for part in batch.parts),
            "gone": gone,
        }
        return view, len(looks)

    def _state(
        self, day: str, batches: Sequence[Batch], script: str
    ) -> tuple[Standing, str]:
        if not batches:
            return Standing.MISSING, "no batch has put a row into it"
        state, text, at = self._run(day)
        if state == Standing.RUNNING and locks.is_locked(self._lock(day)):
            return Standing.RUNNING, text
        latest = max(batch.decided for batch in batches)
        if state == Standing.FAILED and at > latest:
            return Standing.FAILED, text
        others = sum(batch.script != script for batch in batches)
        if others:
            are = "is" if others == 1 else "are"
            of = several(len(batches), "batch")
            why = f"{others:,} of {of} {are} of another script"
            return Standing.STALE, why
        return Standing.DONE, ""

    def _run(self, day: str) -> tuple[str, str, float]:
        query = "SELECT state, text, at FROM runs WHERE day = ?"
        with self._reading() as db:
            row = db.execute(query, (day,)).fetchone()
        return row or ("", "", 0.0)

    # ---- the file

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Do something in one durable transaction."""
        files.make_dir(self._above)
        with self._opened(f"file:{self._file}?mode=rwc") as db:
            db.executescript(_TABLES)
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._opened(f"file:{self._file}?mode=ro") as db:
            yield db

    @contextlib.contextmanager
    def _opened(self, uri: str) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
            with contextlib.closing(db):
                yield db
        except sqlite3.OperationalError as error:  # in use, or a full disk
            raise Busy(f"{self._file}: {error}") from error
        except sqlite3.Error as error:
            raise Damaged(f"{self._file}: {error}") from error


def _say(db: sqlite3.Connection, day: str, state: Standing, text: str) -> None:
    row = (day, str(state), text[:500], time.time())
    db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", row)
    if state is Standing.DONE:
        db.execute("DELETE FROM wanted WHERE day = ?", (day,))


TO_MAKE = (Standing.STALE, Standing.FAILED)


def kept(queue: QueueDir, msg_id: str) -> Path | None:
    """Return the folder of a message that has ended well; None if it is gone."""
    for state in KEPT:
        folder = queue.message(state, msg_id)
        if os.path.isdir(folder):
            return folder
    return None
