"""The directory of a queue's script as a tar: the same bytes for the same files."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from rq.errors import NotPlain, Refused

RUN = "run"
MOST_BYTES = 32 * 1024**2  # of all files
MOST_FILES = 2000
_CONFIG = "config.json"  # it may hold secrets of this host
_KEPT_BYTES = 64 * 1024**2  # of the tars that are kept
_SETTLED = 2.0  # seconds after which a change gives a file another time
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


_Look: TypeAlias = tuple[tuple[str, int, int, int, int, int], ...]
_Archive: TypeAlias = tuple[bytes, str]


class Archives:
    """The tars that were made last, each as long as its directory is unchanged: hundreds
    of agents ask whether theirs is. For threads."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[_Look, _Archive]] = {}
        self._at_work = threading.Lock()

    def of(self, script: Path, now: float) -> tuple[bytes, str]:
        """As the function `of`; `now` is the time of the clock that files have."""
        look = _look(script.parent)
        with self._at_work:
            kept = self._kept.get(script)
        if kept is not None and kept[0] == look:
            return kept[1]
        archive = of(script)
        if all(changed < (now - _SETTLED) * 1e9 for *_, changed in look):
            self._keep(script, look, archive)
        return archive

    def _keep(self, script: Path, look: _Look, archive: _Archive) -> None:
        with self._at_work:
            self._kept.pop(script, None)
            self._kept[script] = look, archive
            while sum(len(data) for _, (data, _) in self._kept.values()) > _KEPT_BYTES:
                del self._kept[next(iter(self._kept))]


def _look(directory: Path) -> _Look:
    """Return what shows whether the files of a directory have changed."""
    listed = itertools.islice(_listed(directory), MOST_FILES + 1)
    return tuple(
        (path, of.st_ino, of.st_mode, of.st_size, of.st_mtime_ns, of.st_ctime_ns)
        for path, _, of, _ in listed
    )


def of(script: Path) -> tuple[bytes, str]:
    """Return the tar of the directory in which a queue's script lies, and the SHA-256 of
    that tar. It has regular files alone, without the config, and of their modes whether
    they can be executed.

    Refused: the directory is none that holds one script alone, or it is too large.
    NotPlain: a file cannot be read.
    """
    if script.name != RUN:
        raise Refused(
            f"the script {script} is not called {RUN}, so its directory may hold "
            f"other things: put it into a directory of its own as {RUN}"
        )
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        left = MOST_BYTES
        for number, (name, path_fd) in enumerate(_files(script.parent), 1):
            with open(path_fd, "rb") as file:
                info, data = _member(name, file, left)
            left -= len(data)
            if left < 0 or number > MOST_FILES:
                raise _too_much(script.parent)
            tar.addfile(info, io.BytesIO(data))
    data = written.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def _files(directory: Path) -> Iterator[tuple[str, int]]:
    """Give the name and a descriptor of each regular file, in the order of their names;
    the caller closes the descriptor. No link is followed."""
    for path, name, _, at in _listed(directory):
        try:
            fd = os.open(name, _FLAGS, dir_fd=at)
        except OSError as error:
            raise _not_shared(error) from None
        yield path, fd


def _listed(directory: Path) -> Iterator[tuple[str, str, os.stat_result, int]]:
    """Give the path of each regular file, its name, what is known of it, and where it
    lies."""
    try:
        for top, inner, names, at in os.fwalk(directory, onerror=_raise):
            inner.sort()
            below = os.path.relpath(top, directory)
            for name in sorted(names):
                path = os.path.normpath(os.path.join(below, name))
                status = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and path != _CONFIG:
                    yield path, name, status, at
    except OSError as error:
        raise _not_shared(error) from None


def _not_shared(error: OSError) -> NotPlain:
    text = f"{error.strerror}, so the script is not shared"
    return NotPlain(error.errno, text, error.filename)


def _raise(error: OSError) -> None:
    raise error


def _member(
    name: str, file: io.BufferedReader, most: int
) -> tuple[tarfile.TarInfo, bytes]:
    """Return what the tar says of an open file, and up to `most` bytes and one of it."""
    status = os.fstat(file.fileno())
    data = file.read(most + 1) if stat.S_ISREG(status.st_mode) else b""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    return info, data


def _too_much(directory: Path) -> Refused:
    return Refused(
        f"{directory} has more than {MOST_FILES} files or {MOST_BYTES // 1024**2} MiB: "
        "workers fetch it as a whole, so keep in it only what the script needs"
    )
