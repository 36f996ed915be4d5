"""Removes directories by their descriptors; follows no link and enters no mount.

Inner directories are first renamed into the top one, so that a deep tree needs no more
memory and no more descriptors than a flat one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
from collections.abc import Iterator

from rq.errors import NotPlain
from rq.files import beneath

_DIR_MODE = 0o750
_PASSES = 100  # over a directory that somebody fills again meanwhile
_FILLED = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def remove(name: str, place: int) -> None:
    """Remove whatever is called `name` in the directory `place`; EXDEV or EBUSY when
    something is mounted in it, of which nothing is removed."""
    for _ in range(_PASSES):
        try:
            with _opened(name, place) as fd:
                _empty(fd)
            os.rmdir(name, dir_fd=place)
            return
        except (NotADirectoryError, NotPlain):
            os.unlink(name, dir_fd=place)
            return
        except OSError as error:
            if error.errno not in _FILLED:
                raise
    raise OSError(errno.EBUSY, "somebody fills it again and again", name)


def open_up(name: str, place: int, mode: int = _DIR_MODE) -> None:
    """Set the mode of what may not even be opened; never of what a link leads to."""
    try:
        os.chmod(name, mode, dir_fd=place, follow_symlinks=False)
    except (ValueError, NotImplementedError):  # of a link; or a system without it
        raise NotPlain(errno.ELOOP, "its mode cannot be changed", name) from None


@contextlib.contextmanager
def _opened(name: str, place: int) -> Iterator[int]:
    """Open a directory that its owner may empty, whatever a script made of its mode."""
    try:
        fd = beneath.open_dir_here(name, place)
    except PermissionError:
        open_up(name, place)
        fd = beneath.open_dir_here(name, place)
    try:
        yield fd
    finally:
        os.close(fd)


def _empty(top: int) -> None:
    """Remove all that is in an open directory, as far as nobody fills it meanwhile."""
    fresh = (f".rq-{secrets.token_hex(4)}-{number}" for number in itertools.count())
    below = _strip(top)
    while below:
        name = below.pop()
        try:
            with _opened(name, top) as fd:
                below.extend(_rise(fd, inner, top, next(fresh)) for inner in _strip(fd))
            os.rmdir(name, dir_fd=top)
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            continue  # somebody else has it: the next pass sees what became of it
        except OSError as error:
            if error.errno not in _FILLED:
                raise


def _strip(fd: int) -> list[str]:
    """Remove the files of an open directory; return the directories in it."""
    with os.scandir(fd) as entries:
        listed = [
            (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries
        ]
    for name, is_dir in listed:
        if not is_dir:
            _unlink(name, fd)
    return [name for name, is_dir in listed if is_dir]


def _unlink(name: str, fd: int) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        try:
            os.unlink(name, dir_fd=fd)
        except PermissionError:
            os.fchmod(fd, _DIR_MODE)
            os.unlink(name, dir_fd=fd)


def _rise(fd: int, name: str, top: int, risen: str) -> str:
    """Move a directory to the top; return what it is called there."""
    try:
        os.rename(name, risen, src_dir_fd=fd, dst_dir_fd=top)
    except PermissionError:
        os.fchmod(fd, _DIR_MODE)
        open_up(name, fd)
        os.rename(name, risen, src_dir_fd=fd, dst_dir_fd=top)
    return risen
