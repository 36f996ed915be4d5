"""Rows: messages that wait as lines of a file until there is room for them.

A million messages that are written in one go would be a million folders and entries in
memory, long before their turn. So those who write very many hand in rows:

1. The rows of a request are written, durably, into a file, and a line `rows` names it.
2. The decision of the transaction names the files that count; the others are removed.
3. Row after row becomes a message, by the line that accepts it; its `row` says from
   which file and place it is, so after a crash none comes twice and none is left out.
4. The file goes when the line of its last row is durable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq.errors import Damaged
from rq.files import durable
from rq.layout import QueueDir

MOST = 5000  # rows of a file
_FILE = "rows-"
ASIDE = "aside-"  # how the names of files begin of which no line tells


@dataclass(slots=True)
class Rows:
    """The rows of a file."""

    file: str  # its id
    number: int
    sha256: str
    taken: int = 0  # of them are messages
    txn: str = ""  # the transaction that has accepted them, …
    due: float = 0.0  # … and when: epoch seconds
    unusable: str = ""  # why no messages are made of them now
    refused: str = ""  # why the next one is no message

    @property
    def left(self) -> int:
        """How many have still to become messages."""
        return self.number - self.taken

    def to_json(self) -> list[Any]:
        return [self.file, self.number, self.sha256, self.taken]


class Stock:
    """The rows that are accepted and have still to become messages, in the order in which
    they do."""

    def __init__(self) -> None:
        self.left = 0  # rows
        self.hurry = False  # a client waits until all are messages
        self._files: dict[str, Rows] = {}
        self._gone: deque[tuple[int, str]] = deque()  # after which event; the file
        # By file that is not known: how many of its rows are messages.
        self._ahead: dict[str, int] = {}

    def __iter__(self) -> Iterator[Rows]:
        return iter(self._files.values())

    @property
    def coming(self) -> int:
        """How many rows can become messages now: not those of files that were left."""
        return sum(rows.left for rows in self if not rows.unusable)

    def add(self, rows: Rows, txn: str, due: float) -> None:
        """Take in rows that a transaction has accepted, `due` then."""
        rows.txn, rows.due = txn, due
        rows.taken = max(rows.taken, self._ahead.get(rows.file, 0))
        if rows.left:
            self._files[rows.file] = rows
            self.left += rows.left

    def take(self, file: str, place: int, seq: int) -> Rows | None:
        """Take note of the line of a row, and return its file if it was the last; one that
        was taken before changes nothing."""
        rows = self._files.get(file)
        if rows is None:
            self._ahead[file] = max(place + 1, self._ahead.get(file, 0))
        if rows is None or place < rows.taken:
            return None
        self.left -= place + 1 - rows.taken
        rows.taken = place + 1
        if rows.left:
            return None
        self.discard(file, seq)
        return rows

    def discard(self, file: str, seq: int) -> None:
        """Make no more messages of a file."""
        rows = self._files.pop(file, None)
        if rows is not None:
            self.left -= rows.left
            self.drop(file, seq)

    def forget_ahead(self) -> None:
        """Forget the lines of rows whose files are not known: all that is known is
        read."""
        self._ahead.clear()

    def has(self, rows: Rows) -> bool:
        """Whether messages are still to be made of a file."""
        return rows.file in self._files

    def drop(self, file: str, seq: int) -> None:
        """Remove a file once the event that says why is durable."""
        self._gone.append((seq, file))

    def droppable(self, durable_seq: int, most: int) -> list[str]:
        """Return up to `most` files that nothing needs any more, once."""
        files: list[str] = []
        while self.drops(durable_seq) and len(files) < most:
            files.append(self._gone.popleft()[1])
        return files

    def drops(self, durable_seq: int) -> bool:
        """Whether files can be removed now."""
        return bool(self._gone) and self._gone[0][0] <= durable_seq


# ---- files


def write(queue: QueueDir, file: str, lines: Collection[bytes]) -> str:
    """Write rows, durably; return what the line that names them says of the content. For
    a thread."""
    data = b"\n".join(lines)
    durable.write_durable(path(queue, file), data)
    durable.crash_point("rows:written")
    return hashlib.sha256(data).hexdigest()


def read(queue: QueueDir, rows: Rows) -> list[bytes]:
    """Return the rows of a file that are still to become messages, as JSON; Damaged: they
    are not those that were accepted. For a thread."""
    place = path(queue, rows.file)
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{place} is not there{_ADVICE}") from None
    if hashlib.sha256(data).hexdigest() != rows.sha256:
        raise Damaged(f"{place} is not what was accepted{_ADVICE}")
    return data.split(b"\n")[rows.taken :]


_ADVICE = ", and messages were to be made of its rows: bring it back from a backup"


def remove(queue: QueueDir, file: str) -> None:
    """Remove a file that nothing needs any more, and what a failed write has left of
    it."""
    for name in (path(queue, file).name, f".{path(queue, file).name}.tmp"):
        durable.unlink(os.fspath(queue.journal / name))


def clear(queue: QueueDir, files: Collection[str]) -> None:
    """Remove the files that no line tells of: a crash came between the two."""
    for name in _strange(queue, files):
        durable.unlink(os.fspath(queue.journal / name))


def set_aside(queue: QueueDir, files: Collection[str]) -> list[str]:
    """Give another name to files of which nothing tells any more: they may have been
    accepted. Return their new names, also of those that were set aside before."""
    for name in _strange(queue, files):
        if name.startswith("."):  # it was never whole
            durable.unlink(os.fspath(queue.journal / name))
            continue
        durable.rename_durable(queue.journal / name, queue.journal / f"{ASIDE}{name}")
    return aside(queue)


def aside(queue: QueueDir) -> list[str]:
    """Return the names of files that were set aside."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(n for n in os.listdir(queue.journal) if n.startswith(ASIDE))
    return []


def _strange(queue: QueueDir, files: Collection[str]) -> list[str]:
    return [
        name
        for name in os.listdir(queue.journal)
        if name.removeprefix(".").startswith(_FILE)
        and name.removeprefix(_FILE) not in files
    ]


def names(files: Iterable[Rows]) -> set[str]:
    """Return the names that the files of rows have in journal/."""
    return {f"{_FILE}{rows.file}" for rows in files}


def path(queue: QueueDir, file: str) -> Path:
    """Return where the rows of a file lie."""
    return queue.journal / f"{_FILE}{file}"
