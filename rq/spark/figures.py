"""What a batch has read and made, in figures.

They are the `result` of each of its messages; the history has columns for them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from rq.spark import expectations
from rq.spark.attachments import File
from rq.spark.expectations import REPLACED, Counts, Parsed, count_of
from rq.spark.remote import ADDRESSES
from rq.words.nesting import Json

NAMED = 20  # outputs that are named


class Figures:
    """The figures of one call of a job's function."""

    def __init__(self) -> None:
        self._files = self._bytes = 0
        self._lines: list[Counts] = []
        self._outputs: dict[str, int | None] = {}
        self.rescued: int | None = None  # None: only lines were read
        self._broken: int | None = (
            None  # rows that break a contract; None: there is none
        )
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

    def check_replaced(self, most: float) -> None:
        """Raise BadInput if more than a share of the lines had bytes that are no text."""
        expectations.check_replaced(self._lines, most)

    def output(self, name: str, rows: int | None) -> None:
        """Count an output; `rows` of a table, which add up, None of anything else."""
        more = None if rows is None else (self._outputs.get(name) or 0) + rows
        self._outputs[name] = more

    def rejected(self, rows: int) -> None:
        """Count rows that break a contract."""
        self._broken = (self._broken or 0) + rows

    def text(
        self, messages: int, parsed: Sequence[Parsed], sent: Sequence[str] | None
    ) -> str:
        """Return all of it as one line of JSON; `sent` are the messages that were sent.
        None: the job has failed, and what it has made is discarded."""
        rejected = sum(entry.counts()[1] for entry in parsed) + (self._broken or 0)
        tables = [rows for rows in self._outputs.values() if rows is not None]
        figures: dict[str, Json] = {"messages": messages, **self._of_lines()}
        if self.rescued is not None:
            figures["rescued"] = self.rescued
        if parsed or self._broken is not None:
            figures["rejected"] = rejected
        if usual := [entry for entry in parsed if entry.has_malformed]:
            figures["malformed"] = sum(entry.malformed() for entry in usual)
        if tables and sent is not None:
            figures["rows_out"] = sum(tables)
        if self._outputs:
            name = "discarded" if sent is None else "outputs"
            figures[name] = dict(list(self._outputs.items())[:NAMED])
        if sent:
            figures["sent"] = list(sent[:NAMED])
        if self._began is not None:
            figures[f"{self._engine}_us"] = int((time.monotonic() - self._began) * 1e6)
        return json.dumps(figures, ensure_ascii=False)

    def _of_lines(self) -> dict[str, Json]:
        """Return what was read; nothing without `q.lines()` and its kin."""
        if not self._lines:
            return {}
        rows_in = sum(count_of(counted) for counted in self._lines)
        replaced = sum(count_of(counted, REPLACED) for counted in self._lines)
        figures: dict[str, Json] = {"files": self._files, "bytes": self._bytes}
        figures["rows_in"] = rows_in
        return {**figures, "replaced": replaced} if replaced else figures
