"""The checkpoint of a journal: up to where its user has the effect of all events on disk;
and where the journal ends, as a start finds out that reads on from there.

A start reads only the events after it. It is one file, replaced as a whole, and has a
checksum, since nothing else would contradict a changed bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NotRequired, TypedDict, TypeVar, cast

from rq.errors import Refused, cause_of, is_busy, is_no_room, is_of_disk
from rq.files import durable
from rq.journal import history, line
from rq.journal.segment_file import Content
from rq.journal.segments import Position
from rq.layout import JOURNAL, JournalDir

_SEED = line.seed("", "checkpoint")  # what its checksum starts from
Parsed = TypeVar("Parsed")


class _Record(TypedDict):
    """The fields of the file that are the journal's own; all others are content."""

    journal: str
    segment: str
    offset: int
    seq: int
    g: int
    start: int
    boot: str
    clean: NotRequired[bool]
    seen: NotRequired[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What holds as of the last event before `position`."""

    position: Position
    start: int
    boot: str
    clean: bool = False  # written by a clean stop
    seen: float = 0.0  # the last time that could be believed; 0: not known
    # JSON of the journal's user.
    content: Mapping[str, object] = field(default_factory=dict)

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
    """Return the checkpoint of a journal; None when there is none that can be used, or
    when it is of a journal that the one in this place does not go on from: a process
    that has lost its directory may have left it here.

    OSError: it cannot be read now.
    """
    point = read_whole(place.checkpoint, lambda file: decode(file.read()))
    return point if point is not None and _is_of(place, point) else None


def _is_of(place: JournalDir, point: Checkpoint) -> bool:
    journal = history.journal_of(place, history.active_segments(place))
    of = point.position.journal
    return journal is None or of in ("", journal, *history.lineage(place, journal))


def decode(data: bytes) -> Checkpoint | None:
    """Return the checkpoint that was encoded; None when it is not whole."""
    record = line.read_object(data, _SEED)
    return None if record is None else _checkpoint(record)


def _checkpoint(record: Mapping[str, object]) -> Checkpoint:
    ours = cast("_Record", record)
    return Checkpoint(
        position=Position(
            segment=ours["segment"],
            offset=ours["offset"],
            seq=ours["seq"],
            g=ours["g"],
            journal=ours["journal"],
        ),
        start=ours["start"],
        boot=ours["boot"],
        clean=ours.get("clean", False),
        seen=ours.get("seen", 0.0),
        content={
            name: value
            for name, value in record.items()
            if name not in _Record.__annotations__
        },
    )


def write(dir_fd: int, point: Checkpoint) -> None:
    """Make a checkpoint the one that the next start of the open directory reads, durably;
    by its path it might reach another one.

    Refused: it cannot be written now, and the last one still holds; try again later.
    OSError: the disk failed.
    """
    try:
        durable.replace_durable(f"{JOURNAL}/checkpoint", point.encode(), dir_fd)
    except OSError as error:
        raise put_off(error) from None


def put_off(error: OSError) -> Exception:
    """Return Refused where nothing is lost: the last checkpoint still holds."""
    if is_busy(error) or is_no_room(error):
        return Refused(f"no room for a checkpoint: {error.strerror}")
    if is_of_disk(error):
        return error
    return Refused(f"no checkpoint can be written: {cause_of(error)}")


def read_whole(path: Path, parse: Callable[[BinaryIO], Parsed | None]) -> Parsed | None:
    """Return what `parse` makes of a file; None when the file is missing or torn.

    OSError: it cannot be read now, which is not the same: what it says may stand
    nowhere else.
    """
    try:
        with path.open("rb") as file:
            return parse(file)
    except OSError as error:
        if is_busy(error):
            raise
        return None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


# ---- where a journal ends


class End:
    """The end of a journal, as its segments are read one after the other."""

    def __init__(self, point: Checkpoint | None) -> None:
        self.last = Position("", 0, 0, 0)
        self.start, self.boot = 0, ""
        if point is not None:
            self.last = point.position
            self.start, self.boot = point.start, point.boot

    def take(self, content: Content) -> None:
        """Take the next segment."""
        position = _end_of(content)
        self.start = max(self.start, int(content.header["start"]))
        self.boot = str(content.header["boot"])
        if position.seq >= self.last.seq:
            g = max(position.g, self.last.g)
            self.last = dataclasses.replace(position, g=g)


def _end_of(content: Content) -> Position:
    header = content.header
    if not content.events:  # it will be replaced, so nothing can follow it
        segment, offset, seq = header["prev"]
        journal = str(header.get("of") or header["journal"])
        return Position(segment, offset, seq, int(header["g"]), journal)
    g, journal = content.events[-1]["g"], str(header["journal"])
    return Position(content.segment.name, content.end, content.last_seq, g, journal)
