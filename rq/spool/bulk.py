"""Bulks: one thing that is done to each message of a set, however many there are.

The set is a list of ids in a file of the journal's directory. The line that begins a
bulk names the file's digest; each event of it says at which place of the list it stands.
So a bulk goes on behind the last of its events that is in the journal, and does nothing
twice. Owner and recovery make the table of bulks from the same lines.

Behind the id of a message that has failed stands which failure was chosen. Until its turn
comes it may have run again and failed again: that failure no person has looked at, so the
message stays as it is and is counted. Lists of the version before hold ids alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rq.errors import NoSuchMessage
from rq.files import durable
from rq.layout import QueueDir
from rq.message.fields import JsonObject
from rq.spool.record import More, NoteFields, Record, WriteNote
from rq.words.nesting import Json
from rq.words.states import Note

MOST_ENDED = 100  # of those that have ended so many are remembered
STEP = "step"  # `is` of a line that is no event: a message at work was told to end
_LIST = "bulk-"


class Standing(StrEnum):
    """How a bulk stands; the word `is` of its lines."""

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class Bulk:
    """A bulk, and how far it is."""

    bulk_id: str
    action: str
    to: Json = None  # what that is done with: a time, a queue
    filter: JsonObject  # by which its messages were chosen
    by: str
    total: int  # messages of its list
    sha256: str  # of its list
    began: float  # epoch seconds
    standing: Standing = Standing.OPEN
    at: int = 0  # messages of its list that were looked at
    changed: int = 0
    failed_again: int = 0  # so many stay: they have failed again since they were chosen
    ended: float = 0.0  # epoch seconds
    why: str = ""  # it failed, or left messages as they are

    @property
    def is_open(self) -> bool:
        return self.standing is Standing.OPEN

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        if not self.failed_again:  # which the version before cannot read
            del row["failed_again"]
        return row


class Bulks:
    """All bulks of a queue that are open, and those that have ended last."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self._by_id = {row["bulk_id"]: _from_json(row) for row in rows}

    def get(self, bulk_id: str) -> Bulk:
        """Return a bulk; NoSuchMessage if none is known by that id."""
        bulk = self._by_id.get(bulk_id)
        if bulk is None:
            raise NoSuchMessage(
                f"no bulk {bulk_id:.60}: it never began here, or ended long ago"
            )
        return bulk

    def all(self) -> list[Bulk]:
        """Return all that are known, the last first."""
        return list(reversed(self._by_id.values()))

    def open_ones(self) -> list[Bulk]:
        """Return those that are open, the first first."""
        return [bulk for bulk in self._by_id.values() if bulk.is_open]

    def to_json(self) -> list[dict[str, Any]]:
        """Return what the constructor takes."""
        return [bulk.to_json() for bulk in self._by_id.values()]

    def take(self, record: Record) -> None:
        """Take a line of the journal that is of a bulk; each once, in their order."""
        bulk = self._by_id.get(record["bulk"])
        if record["ev"] != Note.BULK or record["is"] == STEP:
            if bulk is not None:
                bulk.at = max(bulk.at, record["at"] + 1)
                bulk.changed += 1
                bulk.failed_again = record.get("failed_again", bulk.failed_again)
        elif record["is"] == Standing.OPEN:
            self._by_id[record["bulk"]] = _begun(record)
        elif bulk is not None:
            bulk.standing = Standing(record["is"])
            bulk.ended = record["ts"] / 1e6
            bulk.changed = record["n"]
            bulk.at = record["at"]
            bulk.failed_again = record.get("failed_again", 0)
            bulk.why = record.get("reason", "")
            self._forget()

    def _forget(self) -> None:
        ended = [bulk for bulk in self._by_id.values() if not bulk.is_open]
        for bulk in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._by_id[bulk.bulk_id]


def _begun(record: Record) -> Bulk:
    return Bulk(
        bulk_id=record["bulk"],
        action=record["action"],
        to=record.get("to"),
        filter=record["filter"],
        by=record["by"],
        total=record["n"],
        sha256=record["sha256"],
        began=record["ts"] / 1e6,
    )


def _from_json(row: dict[str, Any]) -> Bulk:
    return Bulk(**{**row, "standing": Standing(row["standing"])})


# ---- the list of its messages


class Chosen(NamedTuple):
    """A message of a list."""

    msg_id: str
    failure: str  # that it was chosen for; "": it had not failed, or that is not known

    @property
    def line(self) -> str:
        return f"{self.msg_id} {self.failure}".rstrip() + "\n"


@dataclass(frozen=True, slots=True)
class Listed:
    """A list that is durable."""

    bulk_id: str
    total: int  # ids
    sha256: str


def write_list(queue: QueueDir, bulk_id: str, lines: bytes) -> Listed:
    """Write down, durably, the messages of a bulk that is to begin, a line each; for a
    thread."""
    durable.write_durable(_list(queue, bulk_id), lines)
    durable.crash_point("bulk:listed")
    return Listed(bulk_id, lines.count(b"\n"), hashlib.sha256(lines).hexdigest())


def read_list(
    queue: QueueDir, bulk: Bulk, most: int
) -> Generator[Sequence[Chosen], None, None]:
    """Give the messages that an open bulk has still to look at, `most` at a time; for
    threads, one after the other. OSError, ValueError: it is not the list that began it.
    """
    path = _list(queue, bulk.bulk_id)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != bulk.sha256:
            raise ValueError(f"{path} is not the list that it began with")
        file.seek(0)
        lines = islice(file, bulk.at, None)
        while some := [_chosen(line.decode()) for line in islice(lines, most)]:
            yield some


def _chosen(line: str) -> Chosen:
    msg_id, _, failure = line.rstrip("\n").partition(" ")
    return Chosen(msg_id, failure)


def drop_list(queue: QueueDir, bulk: Bulk) -> None:
    """Remove the list of a bulk whose end is durable."""
    durable.crash_point("bulk:before-drop")
    durable.unlink(os.fspath(_list(queue, bulk.bulk_id)))


def clear_lists(queue: QueueDir, bulks: Bulks) -> None:
    """Remove the lists that a crash came before, or behind whose end it came."""
    kept = {_LIST + bulk.bulk_id for bulk in bulks.open_ones()}
    for name in os.listdir(queue.journal):
        if name.removeprefix(".").startswith(_LIST) and name not in kept:
            durable.unlink(os.fspath(queue.journal / name))


def _list(queue: QueueDir, bulk_id: str) -> Path:
    return queue.journal / f"{_LIST}{bulk_id}"


# ---- the lines of a bulk that are no events of its messages


class Writer(Protocol):
    """What writes such lines and remembers bulks: the spool of the queue."""

    @property
    def bulks(self) -> Bulks: ...

    @property
    def note(self) -> WriteNote: ...


def begin_bulk(
    spool: Writer,
    listed: Listed,
    *,
    action: str,
    to: Json = None,
    chosen_by: JsonObject,
    by: str,
) -> Bulk:
    """Begin a bulk whose list is durable. `to`: what the action is done with;
    `chosen_by`: the filter; `by`: who asks."""
    first_line: NoteFields = {
        "bulk": listed.bulk_id,
        "is": Standing.OPEN,
        "action": action,
        "filter": chosen_by,
        "by": by,
        "n": listed.total,
        "sha256": listed.sha256,
    }
    if to is not None:
        first_line["to"] = to
    spool.bulks.take(spool.note(Note.BULK, **first_line))
    return spool.bulks.get(listed.bulk_id)


def told_to_end(spool: Writer, msg_id: str, more: More) -> None:
    """Write down that a bulk has told a message at work to end, which has no event of its
    own before it does; `more` names the bulk and the place in its list."""
    line: NoteFields = {
        "bulk": more["bulk"],
        "is": STEP,
        "at": more["at"],
        "msg": msg_id,
    }
    spool.bulks.take(spool.note(Note.BULK, **line))


def end_bulk(spool: Writer, bulk: Bulk, how: Standing, why: str = "") -> None:
    """End an open bulk; what it has not changed by now stays as it is."""
    last_line: NoteFields = {
        "bulk": bulk.bulk_id,
        "is": how,
        "n": bulk.changed,
        "at": bulk.at,
    }
    if bulk.failed_again:
        last_line["failed_again"] = bulk.failed_again
    if why:
        last_line["reason"] = why
    spool.bulks.take(spool.note(Note.BULK, **last_line))
