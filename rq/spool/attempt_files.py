"""`attempts/N.json`: how each attempt on a message ended, made from its line by `settle`.

An only attempt that went well has none: the file `status` tells the same of it, and
nothing ends that message again. So what succeeds at once costs nothing more.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping

from rq.files import beneath, durable
from rq.layout import ATTEMPTS
from rq.spool.record import Record
from rq.words.states import HASHED, Event, State

NEWEST = 20  # of each message that are kept, beside the first
# Errors that a script causes by what it puts in the place of the directory.
_RUINED = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP,
                     errno.EISDIR, errno.EINVAL})  # fmt: skip


def number_of(record: Record) -> int | None:
    """Return the attempt that a line has ended, if it is kept in a file of its own.

    None, too, for a message that goes back because nothing could be started for it: that
    was no attempt, and its number is given again.
    """
    if record["was"] != State.RUN or "cause" not in record:
        return None
    if record["ev"] == Event.REQUEUE and "run_us" not in record:
        return None
    number = record["attempt"]
    if number < 1 or (number == 1 and record["state"] in HASHED):
        return None
    return number


def add(
    kept: dict[int, bytes] | None, number: int | None, status: bytes | None
) -> dict[int, bytes] | None:
    """Return the files still to be written, with that of an attempt, which holds what
    `status` does."""
    if number is None or status is None:
        return kept
    kept = {} if kept is None else kept
    kept[number] = status
    for outlived in [n for n in kept if is_outlived(n, number)]:
        del kept[outlived]
    return kept


def is_outlived(number: int, last: int) -> bool:
    """Return whether an attempt is no longer kept when there was a last one.

    >>> [n for n in range(1, 30) if not is_outlived(n, 29)] == [1, *range(10, 30)]
    True
    """
    return 1 < number <= last - NEWEST


def write(here: str, files: Mapping[int, bytes], again: bool, dir_fd: int) -> None:
    """Write files of attempts into the folder `here`, and remove the one that each
    outlives. `again`: they are probably there."""
    try:
        _write(here, files, again, dir_fd)
    except OSError as error:
        if error.errno not in _RUINED:
            raise
        durable.remove_tree(f"{here}/{ATTEMPTS}", dir_fd)
        _write(here, files, again, dir_fd)


def _write(here: str, files: Mapping[int, bytes], again: bool, dir_fd: int) -> None:
    place = _opened(here, dir_fd)
    try:
        for number, data in files.items():
            name = f"{number}.json"
            if not (again and _is_there(name, data, place)):
                durable.write_new(name, data, place)
            if number - NEWEST > 1:
                durable.unlink(f"{number - NEWEST}.json", place)
    finally:
        os.close(place)


def _opened(here: str, dir_fd: int) -> int:
    folder = beneath.open_place(here, dir_fd)
    try:
        with contextlib.suppress(FileExistsError):
            durable.make_dir(ATTEMPTS, folder)
        return beneath.open_place(ATTEMPTS, folder)
    finally:
        os.close(folder)


def _is_there(name: str, data: bytes, place: int) -> bool:
    try:
        return beneath.read(name, place, len(data) + 1) == data
    except OSError:
        return False
