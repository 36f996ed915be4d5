"""The place of a journal: knows a directory that was copied, or that a backup restored.

`journal/mark` and the header of each segment name the files that they were written into.
Renamed, remounted and restarted these stay the same files; a copy of them is another one.
A directory that is not where its journal was written waits for a person's word.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rq import disk, durable
from rq.journal import history, line
from rq.layout import QueueDir

_SEED = line.seed("", "mark")  # what its checksum starts from


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the mark says."""

    journal: str  # that is written here
    before: str  # that the last lines are of
    directory: disk.Made
    file: disk.Made  # the mark itself
    accepted: Mapping[str, disk.Made] = field(default_factory=dict)  # segments


def read(queue: QueueDir) -> Mark | None:
    """Return the mark of a queue; None when there is none, as earlier versions left it,
    or when it is not whole. OSError: it cannot be read now, and says nothing yet."""
    try:
        data = line.read(queue.mark.read_bytes().removesuffix(b"\n"), _SEED)
        return None if data is None else _mark(data)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _mark(data: Mapping[str, Any]) -> Mark:
    return Mark(
        journal=data["journal"],
        before=data["before"],
        directory=_made(data["directory"]),
        file=_made(data["file"]),
        accepted={name: _made(one) for name, one in data["accepted"].items()},
    )


def _made(data: Any) -> disk.Made:
    number, born = data
    return number, born


def write(queue: QueueDir, dir_fd: int, journal: str, before: str) -> None:
    """Write durably that `journal` goes on in this directory, where the last lines are
    of the journal `before`; the unsealed segments in it are accepted as they are."""
    known: dict[str, Any] = {
        "journal": journal,
        "before": before,
        "directory": disk.made(dir_fd),
        "accepted": {
            one.name: _made_of(one.path) for one in history.active_segments(queue)
        },
    }

    def content(fd: int) -> bytes:
        return line.sealed(line.body({**known, "file": disk.made(fd)}), _SEED)

    durable.crash_point("mark:before-write")
    durable.replace_with("journal/mark", content, dir_fd)
    durable.crash_point("mark:written")


def _made_of(path: Path) -> disk.Made:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return disk.made(fd)
    finally:
        os.close(fd)


def is_elsewhere(queue: QueueDir) -> bool:
    """Return whether the directory is not the one that its journal was written in."""
    kind = disk.describe(queue.path).kind
    for path, known in _known(queue, read(queue)):
        seen = _made_of(path)
        if known and not any(disk.is_made(one, seen, kind) for one in known):
            return True
    return False


def _known(
    queue: QueueDir, mark: Mark | None
) -> Iterator[tuple[Path, list[disk.Made]]]:
    """Give the files of which it is known which ones they were, with what is known."""
    if mark is not None:
        yield queue.path, [mark.directory]
        yield queue.mark, [mark.file]
    for one in history.active_segments(queue):
        header = history.read_header(one.path) or {}
        known = [_made(header["made"])] if "made" in header else []
        if known and mark is not None and one.name in mark.accepted:
            known.append(mark.accepted[one.name])
        yield one.path, known


def why_waiting(queue: QueueDir) -> str | None:
    """Return why nothing may happen in a queue before a person's word; None: it may."""
    if not is_elsewhere(queue):
        return None
    return (
        "its directory was copied or restored: nothing starts before somebody says what "
        f"it is. `rq restore accept {queue.name}`: the same queue, moved here; with "
        "`--copy`: a copy, or older than what has run since"
    )


def accept(queue: QueueDir, dir_fd: int, journal: str, *, copy: bool) -> None:
    """Write down a person's word that a queue whose last lines are of `journal` may go
    on here: as the same one, or as a `copy`, whose journal gets a new id."""
    new = secrets.token_hex(4) if copy else goes_on_as(queue, journal)
    write(queue, dir_fd, new, journal)


def is_written(queue: QueueDir, journal: str) -> bool:
    """Return whether `journal` is the one that is written in a queue."""
    mark = read(queue)
    return mark is not None and mark.journal == journal


def goes_on_as(queue: QueueDir, journal: str) -> str:
    """Return the id under which a queue goes on whose last lines are of `journal`."""
    mark = read(queue)
    return mark.journal if mark is not None and mark.before == journal else journal
