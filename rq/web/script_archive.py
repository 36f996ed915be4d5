"""The directory of a queue's script as a tar: the same bytes for the same files."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from rq.errors import NotPlain, Refused

RUN = "run"
MOST_BYTES = 32 * 1024**2  # of all files
MOST_FILES = 2000
_CONFIG = "config.json"  # it may hold secrets of this host
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


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
    try:
        for top, inner, names, at in os.fwalk(directory, onerror=_raise):
            inner.sort()
            below = os.path.relpath(top, directory)
            for name in sorted(names):
                path = os.path.normpath(os.path.join(below, name))
                mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
                if stat.S_ISREG(mode) and path != _CONFIG:
                    yield path, os.open(name, _FLAGS, dir_fd=at)
    except OSError as error:
        text = f"{error.strerror}, so the script is not shared"
        raise NotPlain(error.errno, text, error.filename) from None


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
