"""The folders of messages that run: what the owner does in them beside their script."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import orjson

from rq import beneath, durable
from rq.layout import JOB, MSG, STATUS, folder
from rq.states import State


class RunFolders:
    """The folders in `run/` of one queue."""

    def __init__(self, queue: Path, dir_fd: int) -> None:
        self._queue = queue
        self._dir_fd = dir_fd

    def work_dir(self, msg_id: str) -> str:
        """Make the script's directory of a claimed message; return its whole path."""
        os.close(self.open_work_dir(msg_id))
        return f"{self._queue}/{folder(State.RUN, msg_id)}/{JOB}"

    def open_work_dir(self, msg_id: str) -> int:
        """As `work_dir`; return a descriptor of it, which is the directory itself and
        nothing that a link in its place leads to."""
        place = folder(State.RUN, msg_id)
        fd = beneath.open_place(place, self._dir_fd)
        try:
            with contextlib.suppress(FileExistsError):
                durable.make_dir(JOB, fd)
            return beneath.open_place(JOB, fd)
        except OSError as error:
            error.filename = f"{place}/{JOB}"
            raise
        finally:
            os.close(fd)

    def stamp(self, msg_id: str) -> tuple[int, int] | None:
        """Return what changes when anybody touches the file `msg` of a message: its
        inode number, and when it was changed, in ns. None: there is none."""
        path = f"{folder(State.RUN, msg_id)}/{MSG}"
        try:
            info = os.stat(path, dir_fd=self._dir_fd, follow_symlinks=False)
        except OSError:
            return None
        return info.st_ino, info.st_ctime_ns

    def write_progress(self, msg_id: str, text: str) -> None:
        """Show what a running script has said; not promised."""
        path = f"{folder(State.RUN, msg_id)}/{STATUS}"
        with contextlib.suppress(OSError):
            durable.replace(path, orjson.dumps({"job_status": text}), self._dir_fd)
