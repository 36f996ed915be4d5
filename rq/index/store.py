"""The file of the index, for the process that writes it: places, batches, age.

One transaction holds a batch of lines and the places up to which they were read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rq.errors import Damaged
from rq.index import schema
from rq.index.batch import ROW_NAMES, Batch, Row
from rq.index.schema import Cell
from rq.layout import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Up to where a queue was read: the event, and hints where its line stands (`at`: it
    begins there in the file)."""

    journal: str | None = None
    seq: int = 0
    checksum: str | None = None
    file: str | None = None
    inode: int | None = None
    at: int | None = None


class Store:
    """The index of a root."""

    def __init__(self, root: Root) -> None:
        """Damaged: it has to be made again (`remove`)."""
        self.root = root
        self._base = schema.writer(root)

    def close(self) -> None:
        self._base.close()

    # ---- queues

    def queues(self) -> dict[str, tuple[int, Place]]:
        """Return the queues that it knows: their numbers, and how far they were read."""
        rows = self._base.execute(
            "SELECT name, id, journal, seq, checksum, file, inode, at FROM queues"
        )
        return {
            name: (
                number,
                Place(
                    journal=journal,
                    seq=seq,
                    checksum=checksum,
                    file=file,
                    inode=inode,
                    at=at,
                ),
            )
            for name, number, journal, seq, checksum, file, inode, at in rows
        }

    def number(self, name: str) -> int:
        """Return the number of a queue, which it gets if it is new."""
        with self.transaction():
            self._base.execute(
                "INSERT OR IGNORE INTO queues (name) VALUES (?)", (name,)
            )
            row = self._base.execute("SELECT id FROM queues WHERE name = ?", (name,))
            return int(row.fetchone()[0])

    # ---- batches

    def batch(self) -> Batch:
        return Batch(self._base)

    def write(
        self, batch: Batch, places: Mapping[int, Place], facts: Mapping[str, Cell]
    ) -> None:
        """Write what was read, and up to where."""
        with self.transaction():
            batch.write()
            self._base.executemany(
                "UPDATE queues SET journal = ?, seq = ?, checksum = ?, file = ?, inode = ?, "
                "at = ? WHERE id = ?",
                [
                    (at.journal, at.seq, at.checksum, at.file, at.inode, at.at, number)
                    for number, at in places.items()
                ],
            )
            self._base.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)", list(facts.items())
            )

    def place(self, number: int, place: Place) -> None:
        """Note a place by itself: a queue is read from its beginning."""
        self.write(self.batch(), {number: place}, {})

    def rows(self, statement: str, values: Sequence[Cell] = ()) -> list[Row]:
        """Return messages, by a statement that names all of their columns."""
        kept = self._base.execute(statement, values).fetchall()
        return [Row(**dict(zip(ROW_NAMES, row, strict=True))) for row in kept]

    # ---- the file

    def facts(self) -> dict[str, Cell]:
        """Return what is noted of the index as a whole."""
        return dict(self._base.execute("SELECT name, value FROM facts"))

    def note(self, **facts: Cell) -> None:
        with self.transaction() as base:
            base.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)", [*facts.items()]
            )

    def size(self) -> int:
        """Return how many bytes of the file hold something."""
        count, free, size = (
            int(self._base.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (count - free) * size

    def check(self) -> None:
        """Damaged: pages of the file do not fit together."""
        words = self._base.execute("PRAGMA quick_check(1)").fetchone()[0]
        if words != "ok":
            raise Damaged(f"{schema.place(self.root)}: {words}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written within, or nothing."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield self._base
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")
