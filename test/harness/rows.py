"""A queue of which few rows become messages at a time."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from harness.queues import RunningQueue
from harness.waiting import wait_until

NOTES = '#!/bin/sh\necho "$RQ_PARAM1" >> {}\necho done >&3\n'


class RowsQueue(RunningQueue):
    """A queue that is paused; its script notes what it is given."""

    def __init__(self, path: Path, most: int = 10) -> None:
        self.note = path / "ran"
        super().__init__(path, "t", NOTES.format(self.note))
        self.limit_to(most)
        self._numbers = itertools.count()
        self.root.pause("t").touch()

    def limit_to(self, most: int, again: float = 3600) -> None:
        """From the next start on let so many wait that were rows, and look at a file that
        is damaged after so many seconds again."""
        self.env |= {"TEST_ROWS": str(most), "TEST_ROWS_AGAIN": str(again)}

    def add(self, *sizes: int) -> list[Path]:
        """Add rows, so many a file, and commit them; return their files."""
        txn = self.ok("open_txn", {})["txn"]
        files = [self.add_to(txn, size) for size in sizes]
        self.ok("commit_txn", {"txn": txn, "ids": [], "rows": files})
        return [self.dir.journal / f"rows-{name}" for name in files]

    def add_to(self, txn: str, size: int) -> str:
        """Add rows to a transaction; return their file."""
        rows = [{"param1": f"row {next(self._numbers)}"} for _ in range(size)]
        return str(self.ok("add_rows", {"txn": txn, "messages": rows})["rows"])

    def until_rows(self, number: int) -> None:
        """Wait until so many are still to become messages."""
        wait_until(lambda: self.ok("detail")["rows"] == number)

    def listed(self) -> Counter[str]:
        """Return param1 of all that wait, and how often."""
        rows = self.ok("list", {"state": "que", "limit": 10_000})
        return Counter(row["param1"] for row in rows)

    def each_ran_once(self, number: int) -> None:
        """Let all run: nothing is lost, and nothing was made twice."""
        self.root.pause("t").unlink()
        self.ask("wake")
        wait_until(lambda: self.ok("detail")["counts"]["done"] >= number, 60)
        detail = self.ok("detail")
        counts = detail["counts"]
        assert (counts["done"], counts["que"], counts["err"]) == (number, 0, 0)
        assert detail["rows"] == 0
        assert Counter(self.note.read_text().splitlines()) == each_once(number)
        assert list(self.dir.journal.glob("rows-*")) == []


def each_once(number: int) -> Counter[str]:
    """Return what the first rows say, each once."""
    return Counter(f"row {at}" for at in range(number))


def flip(file: Path) -> bytes:
    """Damage a file of rows; return what it held."""
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"row", b"raw"))
    return whole
