"""The checkpoint of a journal: up to where its user has the effect of all events on disk.

A start reads only the events after it. It is one file, replaced as a whole, and has a
checksum, since nothing else would contradict a changed bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rq import durable
from rq.errors import Refused, cause_of, is_busy, is_no_room, is_of_disk
from rq.journal import line
from rq.journal.segments import Position
from rq.layout import JournalDir

_SEED = line.seed("", "checkpoint")  # what its checksum starts from
_OURS = frozenset(
    {"journal", "segment", "offset", "seq", "g", "start", "boot", "clean", "seen"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What holds as of the last event before `position`."""

    position: Position
    start: int
    boot: str
    clean: bool = False  # written by a clean stop
    seen: float = 0.0  # the last time that could be believed; 0: not known
    content: Mapping[str, Any] = field(
        default_factory=dict
    )  # JSON of the journal's user

    def encode(self) -> bytes:
        """Return the content of the file."""
        at = self.position
        record: dict[str, object] = {
            "journal": at.journal,
            "segment": at.segment,
            "offset": at.offset,
            "seq": at.seq,
            "g": at.g,
            "start": self.start,
            "boot": self.boot,
            **self.content,
            "clean": self.clean,
            "seen": self.seen,
        }
        return line.sealed(line.body(record), _SEED)


def read(place: JournalDir) -> Checkpoint | None:
    """Return the checkpoint of a journal; None when there is none that can be used.

    OSError: it cannot be read now, which is not the same: what it says may stand
    nowhere else.
    """
    try:
        record = line.read_object(place.checkpoint.read_bytes(), _SEED)
        return None if record is None else _checkpoint(record)
    except OSError as error:
        if is_busy(error):
            raise
        return None
    except (ValueError, KeyError, TypeError):
        return None


def _checkpoint(record: Mapping[str, Any]) -> Checkpoint:
    at = (record[name] for name in ("segment", "offset", "seq", "g", "journal"))
    return Checkpoint(
        position=Position(*at),
        start=record["start"],
        boot=record["boot"],
        clean=record.get("clean", False),
        seen=record.get("seen", 0.0),
        content={name: record[name] for name in record if name not in _OURS},
    )


def write(place: JournalDir, point: Checkpoint) -> None:
    """Make a checkpoint the one that the next start reads, durably.

    Refused: it cannot be written now, and the last one still holds; try again later.
    OSError: the disk failed.
    """
    try:
        durable.write_durable(place.checkpoint, point.encode())
    except OSError as error:
        raise put_off(error) from None


def put_off(error: OSError) -> Exception:
    """Return Refused where nothing is lost: the last checkpoint still holds."""
    if is_busy(error) or is_no_room(error):
        return Refused(f"no room for a checkpoint: {error.strerror}")
    if is_of_disk(error):
        return error
    return Refused(f"no checkpoint can be written: {cause_of(error)}")
