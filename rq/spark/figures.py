"""What a batch has read and made, in figures: for the page of its messages and the history.

They are the `result` of each of its messages; the history has columns for them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from rq.nesting import Json
from rq.spark import expectations
from rq.spark.attachments import File
from rq.spark.expectations import Counts, Parsed
from rq.spark.remote import ADDRESSES

_NAMES = 20  # outputs that are named


class Figures:
    """The figures of one call of a job's function."""

    def __init__(self) -> None:
        self._files = self._bytes = 0
        self._lines: list[Counts] = []
        self._outputs: dict[str, int | None] = {}
        self._began: float | None = None  # a monotonic time

    def began(self, engine: str) -> None:
        """An engine, `spark` or `duckdb`, is at work from now on."""
        if self._began is None:
            self._engine, self._began = engine, time.monotonic()

    def read(self, every: Iterable[File], lines: Counts) -> None:
        """Count files, and their lines, once something has read them."""
        for file in every:
            self._files += 1
            self._bytes += 0 if file.where.startswith(ADDRESSES) else file.size
        self._lines.append(lines)

    def output(self, name: str, rows: int | None) -> None:
        """Count an output; `rows` of a table, which add up, None of anything else."""
        more = None if rows is None else (self._outputs.get(name) or 0) + rows
        self._outputs[name] = more

    def text(self, messages: int, parsed: Sequence[Parsed], sent: Sequence[str]) -> str:
        """Return all of it as one line of JSON; `sent` are the messages that were sent."""
        rows_in = sum(expectations.count_of(counted) for counted in self._lines)
        rejected = sum(entry.counts()[1] for entry in parsed)
        tables = [rows for rows in self._outputs.values() if rows is not None]
        figures: dict[str, Json] = {"messages": messages}
        if self._lines:
            figures |= {"files": self._files, "bytes": self._bytes, "rows_in": rows_in}
        if parsed:
            figures["rejected"] = rejected
        if usual := [entry for entry in parsed if entry.has_malformed]:
            figures["malformed"] = sum(entry.malformed() for entry in usual)
        if tables:
            figures["rows_out"] = sum(tables)
        if self._outputs:
            figures["outputs"] = dict(list(self._outputs.items())[:_NAMES])
        if sent:
            figures["sent"] = list(sent[:_NAMES])
        if self._began is not None:
            figures[f"{self._engine}_us"] = int((time.monotonic() - self._began) * 1e6)
        return json.dumps(figures, ensure_ascii=False)
