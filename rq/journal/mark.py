"""The mark of a journal: which directory it was written in.

`journal/mark` and the header of each segment name the files that they were written into
(inode and time of birth). A directory that was renamed or mounted again still has these
files; a copy of it, or one that a backup restored, has others, and nothing may happen in
it before a person has said what it is.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rq.files import disk, durable
from rq.journal import history, line
from rq.journal.segment_file import read_header
from rq.layout import JOURNAL, JournalDir

_SEED = line.seed("", "mark")  # what its checksum starts from


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the mark says."""

    journal: str  # that is written here
    before: str  # that the last lines are of
    directory: disk.Identity
    file: disk.Identity  # the mark itself
    accepted: Mapping[str, disk.Identity] = field(default_factory=dict)  # segments


def read(place: JournalDir) -> Mark | None:
    """Return the mark of a journal; None when there is none, as earlier versions left
    it, or when it is not whole. OSError: it cannot be read now, and says nothing yet."""
    try:
        data = line.read_object(place.mark.read_bytes(), _SEED)
        return None if data is None else _mark(data)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _mark(data: Mapping[str, object]) -> Mark:
    accepted = cast("Mapping[str, object]", data["accepted"])
    return Mark(
        journal=str(data["journal"]),
        before=str(data["before"]),
        directory=_identity(data["directory"]),
        file=_identity(data["file"]),
        accepted={name: _identity(file) for name, file in accepted.items()},
    )


def _identity(data: object) -> disk.Identity:
    number, born = cast("disk.Identity", data)
    return number, born


def write(place: JournalDir, dir_fd: int, journal: str, before: str) -> None:
    """Write durably that `journal` goes on in this directory, where the last lines are
    of the journal `before`; the unsealed segments in it are accepted as they are."""
    active = history.active_segments(place)
    data: dict[str, object] = {
        "journal": journal,
        "before": before,
        "directory": disk.identity(dir_fd),
        "accepted": {segment.name: _identity_of(segment.path) for segment in active},
    }

    def content(fd: int) -> bytes:
        return line.sealed(line.body({**data, "file": disk.identity(fd)}), _SEED)

    durable.crash_point("mark:before-write")
    durable.replace_with(f"{JOURNAL}/mark", content, dir_fd)
    durable.crash_point("mark:written")


def _identity_of(path: Path) -> disk.Identity:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return disk.identity(fd)
    finally:
        os.close(fd)


def is_elsewhere(place: JournalDir) -> bool:
    """Return whether the directory is not the one that its journal was written in."""
    kind = disk.describe(place.path).kind
    for path, expected in _expected(place, read(place)):
        seen = _identity_of(path)
        if expected and not any(disk.is_same(file, seen, kind) for file in expected):
            return True
    return False


def _expected(
    place: JournalDir, mark: Mark | None
) -> Iterator[tuple[Path, list[disk.Identity]]]:
    """Give each file that may tell a copy, with which files it may be; none: any."""
    if mark is not None:
        yield place.path, [mark.directory]
        yield place.mark, [mark.file]
    for segment in history.active_segments(place):
        header = read_header(segment.path)
        expected = [_identity(header["made"])] if header and "made" in header else []
        if expected and mark is not None and segment.name in mark.accepted:
            expected.append(mark.accepted[segment.name])
        yield segment.path, expected


def accept(place: JournalDir, dir_fd: int, journal: str, *, copy: bool) -> None:
    """Write down that a journal whose last lines are of `journal` may go on here, as a
    person has decided: as the same one, or as a `copy`, which gets a new id."""
    new = secrets.token_hex(4) if copy else goes_on_as(place, journal)
    write(place, dir_fd, new, journal)


def is_written(place: JournalDir, journal: str) -> bool:
    """Return whether `journal` is the one that is written in a place."""
    mark = read(place)
    return mark is not None and mark.journal == journal


def goes_on_as(place: JournalDir, journal: str) -> str:
    """Return the id under which a journal goes on whose last lines are of `journal`."""
    mark = read(place)
    return mark.journal if mark is not None and mark.before == journal else journal
