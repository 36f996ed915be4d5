"""What leaves the index: old age, too many bytes, removed queues, params of lost history.

All in small transactions, so that reading goes on in between. A row leaves together with
its words: these are made again from the row, letter by letter."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from rq.index import sums
from rq.index.batch import ROW_NAMES, Batch, Row
from rq.index.schema import Cell, SqlRow
from rq.index.store import Store

CHUNK = 1000  # rows of a transaction
_DAY = 86_400_000_000  # µs
_ENDED = "state IN ('done', 'relayed', 'dismissed', 'gone')"
_AMONG = "{} IN (SELECT value FROM json_each(?))"
_ROWS = f"SELECT {', '.join(ROW_NAMES)} FROM messages"


class Retention:
    """Removes rows of an index."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def remove_old(self, days: float, now: float) -> bool:
        """Remove some of what ended more than `days` ago; return whether there is more."""
        before = int(now * 1e6 - days * _DAY)
        rows = self._rows(
            f"{_ROWS} WHERE {_ENDED} AND changed < ? LIMIT ?", before, CHUNK
        )
        with self._store.transaction() as base:
            self._remove(rows)
            old = base.execute(
                "SELECT id FROM runs WHERE ended < ? ORDER BY ended LIMIT ?",
                (before, CHUNK),
            )
            old_runs = sums.remove_runs(base, _AMONG.format("id"), _ids(old))
            base.execute("DELETE FROM hours WHERE hour < ?", (before // 3_600_000_000,))
        return len(rows) == CHUNK or old_runs == CHUNK

    def shrink(self, limit: float) -> bool:
        """Remove some of the oldest rows if the file holds more than `limit` bytes;
        return whether there is more to do."""
        if self._store.size() <= limit:
            return False
        rows = self._rows(f"{_ROWS} WHERE {_ENDED} ORDER BY changed LIMIT ?", CHUNK)
        with self._store.transaction():
            self._remove(rows)
        return len(rows) == CHUNK

    def clear(self, queue: int) -> bool:
        """Remove some of the rows of a queue; return whether there is more to do."""
        rows = self._rows(f"{_ROWS} WHERE queue = ? LIMIT ?", queue, CHUNK)
        with self._store.transaction() as base:
            self._remove(rows)
            if len(rows) < CHUNK:
                for table in ("prepared", "hours", "sums", "runs"):
                    base.execute(f"DELETE FROM {table} WHERE queue = ?", (queue,))
        return len(rows) == CHUNK

    def forget(self, queue: int) -> None:
        """Forget a queue whose rows are gone."""
        with self._store.transaction() as base:
            base.execute("DELETE FROM queues WHERE id = ?", (queue,))

    def silence(self, queue: int, first: int) -> None:
        """Forget what removed messages said that were accepted before the event `first`:
        the queue's own history holds it no more."""
        rows = self._rows(
            f"{_ROWS} WHERE queue = ? AND state = 'gone' AND params IS NOT NULL "
            "AND seq < ? LIMIT ?",
            *(queue, first, CHUNK),
        )
        with self._store.transaction() as base:
            batch = self._store.batch()
            batch.write_words([(row.id, row.words, "") for row in rows])
            base.executemany(
                "UPDATE messages SET params = NULL, key = NULL, src = NULL, by = NULL "
                "WHERE id = ?",
                [(row.id,) for row in rows],
            )

    def _rows(self, statement: str, *values: Cell) -> list[Row]:
        return self._store.rows(statement, values)

    def _remove(self, rows: Iterable[Row]) -> None:
        batch: Batch = self._store.batch()
        batch.write_words([(row.id, row.words, "") for row in rows])
        batch.write_words([(row.id, row.said, "") for row in rows], "said")
        ids = [(row.id,) for row in rows]
        sums.remove_runs(batch.base, _AMONG.format("message"), _ids(ids))
        batch.base.executemany("DELETE FROM messages WHERE id = ?", ids)


def _ids(rows: Iterable[SqlRow]) -> tuple[str]:
    """Return the first column of rows, as `_AMONG` takes it."""
    return (orjson.dumps([row[0] for row in rows]).decode(),)
