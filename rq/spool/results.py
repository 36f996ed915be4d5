"""Files that an attempt elsewhere hands in: kept apart until it is done, then attachments.

They lie in `job/results/ATTEMPT/`. The line that ends the attempt names them; `settle`
gives them their place in `attach/`, after a crash as well.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator, Mapping

from rq.errors import BadInput, NotPlain, NotWhole
from rq.files import beneath, durable
from rq.files.durable import content
from rq.layout import JOB, UPLOAD_PREFIX, folder
from rq.message.fields import Attachment
from rq.spool.mover import RESULTS, results_of
from rq.spool.store import Spool
from rq.words.states import State

_numbers = itertools.count(1)


@contextlib.contextmanager
def opened(spool: Spool, msg_id: str, attempt: int) -> Iterator[int]:
    """Give a descriptor of the directory for the files of an attempt; it is made."""
    spool.settle(msg_id)
    fds = [spool.run_folders.open_work_dir(msg_id)]
    try:
        for name in (RESULTS, str(attempt)):
            with contextlib.suppress(FileExistsError):
                durable.make_dir(name, fds[-1])
            fds.append(beneath.open_place(name, fds[-1]))
        yield fds[-1]
    finally:
        for fd in fds:
            os.close(fd)


def sizes(place: int) -> dict[str, int]:
    """Return the whole files in an open directory, and the bytes of each."""
    return {
        name: os.stat(name, dir_fd=place, follow_symlinks=False).st_size
        for name in beneath.names(".", place)
        if not name.startswith(UPLOAD_PREFIX)
    }


def take(place: int, source: int, name: str, most: int) -> Attachment:
    """Copy the open file `source` into an open directory, durably; for a thread. It
    has no name before it is whole. OSError if it grows to more than `most` bytes."""
    if not stat.S_ISREG(os.fstat(source).st_mode):
        raise BadInput("not a regular file")
    upload = f"{UPLOAD_PREFIX}{os.getpid()}-{next(_numbers)}"
    sha, md5, size = content.copy_hashed(source, upload, place, most)
    durable.move(upload, name, place)
    return Attachment(sha256=sha, md5=md5, size=size)


def verify(
    spool_fd: int, msg_id: str, attempt: int, wanted: Mapping[str, str]
) -> dict[str, Attachment]:
    """Make the files that an attempt hands in durable, names and SHA-256; return them as
    attachments. For a thread. NotWhole: one of them is not what was handed in."""
    top = folder(State.RUN, msg_id)
    place = f"{top}/{results_of(attempt)}"
    files = {
        name: _verified(f"{place}/{name}", name, sha256, spool_fd)
        for name, sha256 in wanted.items()
    }
    durable.sync_files(place, files, spool_fd)
    for above in (f"{top}/{JOB}", top, str(State.RUN)):
        durable.sync_path(above, spool_fd)
    return files


def _verified(path: str, name: str, sha256: str, spool_fd: int) -> Attachment:
    try:
        sha, md5, size = content.digests(path, spool_fd)
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        raise NotWhole(f"result {name} is not here; hand it in first") from None
    if sha != sha256:
        raise NotWhole(f"result {name} is not whole; hand it in again")
    return Attachment(sha256=sha, md5=md5, size=size)


def drop(spool: Spool, msg_id: str, attempt: int) -> None:
    """Remove what an attempt has handed in that was not done."""
    place = spool.place(msg_id)
    if place is not None:
        with contextlib.suppress(OSError):
            spool.gone.doom(f"{place}/{results_of(attempt)}", f"{msg_id}.{attempt}")
