"""Files and directories made, moved and removed: visible to all, not yet durable."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator

from rq.errors import NotPlain
from rq.files import beneath
from rq.files.durable import removal
from rq.files.durable.crash_points import crash_point

DIR_MODE = 0o750
FILE_MODE = 0o640
ATTACHMENT_MODE = 0o440


def make_dir(path: str, dir_fd: int | None = None) -> None:
    """Make a directory; FileExistsError if there is one."""
    os.mkdir(path, DIR_MODE, dir_fd=dir_fd)


def make_dirs(path: str, dir_fd: int | None = None) -> None:
    """Make a directory and what is missing above it."""
    if not path:
        return
    try:
        os.mkdir(path, DIR_MODE, dir_fd=dir_fd)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_dirs(os.path.dirname(path), dir_fd)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, DIR_MODE, dir_fd=dir_fd)


def write_new(
    path: str, data: bytes, dir_fd: int | None = None, mode: int = FILE_MODE
) -> None:
    """Write a new file, in the place of an old one if there is one; a crash may leave
    it torn."""
    if dir_fd is None:
        with _parent(path, None) as (place, name):
            _write(name, data, place, mode)
    else:
        _write(path, data, dir_fd, mode)


def _write(path: str, data: bytes, dir_fd: int, mode: int = FILE_MODE) -> None:
    fd = beneath.create(path, dir_fd, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def overwrite(path: str, data: bytes, dir_fd: int) -> None:
    """As `write_new`, into the file that lies there if only we can write to it: a file
    system is slow to make files while it frees others. A reader may see half of it."""
    try:
        fd = beneath.open_plain(path, dir_fd, os.O_RDWR)
    except OSError:
        write_new(path, data, dir_fd)
        return
    try:
        is_ours = _write_over(fd, data)
    finally:
        os.close(fd)
    if not is_ours:
        write_new(path, data, dir_fd)


def _write_over(fd: int, data: bytes) -> bool:
    """Give an open file another content; False if others may have written to it."""
    info, written = os.fstat(fd), 0
    if info.st_uid != os.geteuid() or info.st_mode & 0o7777 & ~FILE_MODE:
        return False
    while written < len(data):
        written += os.pwrite(fd, data[written:], written)
    crash_point("overwrite:before-cut")
    if info.st_size > len(data):
        os.ftruncate(fd, len(data))
    return True


def replace(path: str, data: bytes, dir_fd: int | None = None) -> None:
    """Write a file so that a reader sees the old or the new one, never half."""
    with _parent(path, dir_fd) as (place, name):
        _write(f"{name}.tmp", data, place)
        crash_point("write:before-rename")
        os.rename(f"{name}.tmp", name, src_dir_fd=place, dst_dir_fd=place)
    crash_point("write:after-rename")


@contextlib.contextmanager
def _parent(path: str, dir_fd: int | None) -> Iterator[tuple[int, str]]:
    """Give the directory that holds `path`, and the name in it. A whole path is of our
    own making; what is below a descriptor, others may have touched."""
    if dir_fd is not None:
        with beneath.parent(path, dir_fd) as place_and_name:
            yield place_and_name
        return
    head, name = os.path.split(path)
    with beneath.top(head or ".") as place:
        yield place, name


def open_plain(path: str, flags: int, dir_fd: int | None) -> int:
    """Open a file or a directory, never through a link."""
    if dir_fd is not None:
        return beneath.open_any(path, flags, dir_fd)
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def move(source: str, target: str, dir_fd: int | None = None) -> None:
    """Rename a folder, making the directories above the target when they are missing."""
    crash_point("move:before-rename")
    try:
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileNotFoundError:
        make_dirs(os.path.dirname(target), dir_fd)
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    crash_point("move:after-rename")


def link(source: str, target: str, dir_fd: int, to_dir_fd: int) -> None:
    """Give a file of one open directory a name in another."""
    os.link(
        source,
        target,
        src_dir_fd=dir_fd,
        dst_dir_fd=to_dir_fd,
        follow_symlinks=False,
    )


def unlink(path: str, dir_fd: int | None = None) -> None:
    """Remove a name; nothing happens when it is not there."""
    with contextlib.suppress(FileNotFoundError), _parent(path, dir_fd) as (place, name):
        os.unlink(name, dir_fd=place)


def claim(path: str) -> bool:
    """Remove a name; return whether it was this call that removed it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_dir(path: str, dir_fd: int | None = None) -> bool:
    """Remove a directory if it is empty; return whether it is gone."""
    try:
        os.rmdir(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EBUSY):
            return False
        raise
    return True


def remove_tree(path: str, dir_fd: int | None = None) -> None:
    """Remove whatever has a name, with all that is below it; none is fine."""
    with contextlib.suppress(FileNotFoundError), _parent(path, dir_fd) as (place, name):
        removal.remove(name, place)


def clear_way(path: str, names: Iterable[str], dir_fd: int) -> None:
    """Make a folder writable and movable again, whatever its script has done to it.

    Its mode is put right, and what is no file goes from the places of `names`.
    """
    with beneath.parent(path, dir_fd) as (place, name):
        try:
            allow(name, DIR_MODE, place)
            folder = beneath.open_dir(name, place)
        except (NotPlain, NotADirectoryError):
            unlink(name, place)
            return
    try:
        for name in names:
            for each in (name, f"{name}.tmp"):
                if not _is_plain(each, folder):
                    remove_tree(each, folder)
    finally:
        os.close(folder)


def _is_plain(name: str, place: int) -> bool:
    try:
        info = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:  # what cannot be looked at is not for removal
        return False
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def allow(path: str, mode: int, dir_fd: int | None = None) -> None:
    """Set the mode of a file or a directory; of a file with more names, of none."""
    try:
        fd = open_plain(path, os.O_RDONLY, dir_fd)
    except PermissionError:
        with _parent(path, dir_fd) as (place, name):
            removal.open_up(name, place, mode)
        return
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            raise NotPlain(errno.EMLINK, f"it has {info.st_nlink} names", path)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def give(name: str, ids: tuple[int, int], mode: int, dir_fd: int) -> None:
    """Let a directory belong to a user and a group; its mode is set while it is ours."""
    os.chmod(name, mode, dir_fd=dir_fd)
    os.chown(name, *ids, dir_fd=dir_fd, follow_symlinks=False)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` where the descriptor stands."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
