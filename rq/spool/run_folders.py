"""The folders of messages that run: what the owner does in them beside their script."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import orjson

from rq.files import beneath, durable
from rq.files.beneath import Stamp
from rq.layout import ATTACH, JOB, MSG, STATUS, folder
from rq.spool import handed_over
from rq.spool.handed_over import Ids
from rq.words.states import State


class RunFolders:
    """The folders in `run/` of one queue."""

    def __init__(self, queue: Path, dir_fd: int) -> None:
        self._queue = queue
        self._dir_fd = dir_fd

    def work_dir(self, msg_id: str, ids: Ids | None = None) -> str:
        """Make the script's directory of a claimed message; return its whole path."""
        os.close(self.open_work_dir(msg_id, ids))
        return f"{self._queue}/{folder(State.RUN, msg_id)}/{JOB}"

    def open_work_dir(self, msg_id: str, ids: Ids | None = None) -> int:
        """As `work_dir`; return a descriptor of it, which is the directory itself and
        nothing that a link in its place leads to. `ids`: the user and group that its
        script runs as, if they are not ours."""
        place = folder(State.RUN, msg_id)
        path = f"{place}/{JOB}"
        try:
            # A link on the way there, which only a script of our own user can have made,
            # gets an empty directory and is refused when that is opened.
            is_ours = self._is_made(path) or not self._may_be_handed_over(place)
            if ids is None and is_ours:
                return beneath.open_place(path, self._dir_fd)
            return self._fitting(place, ids)
        except OSError as error:
            error.filename = path
            raise

    def _may_be_handed_over(self, place: str) -> bool:
        return handed_over.may_be_handed_over(place, self._dir_fd)

    def _is_made(self, path: str) -> bool:
        try:
            durable.make_dir(path, self._dir_fd)
        except FileExistsError:
            return False
        return True

    def _fitting(self, place: str, ids: Ids | None) -> int:
        """Open the directory that is there; one that does not belong to whom its script
        runs as makes room for another."""
        fd = beneath.open_place(place, self._dir_fd)
        try:
            job = beneath.open_place(JOB, fd)
            if not handed_over.fits(fd, job, ids):
                os.close(job)
                job = handed_over.renew(fd, ids)
            return job
        finally:
            os.close(fd)

    def let_pass(self) -> None:
        """Allow other users to pass through, and not list, the directories that lead to
        those in which their scripts work."""
        handed_over.let_pass(self._queue)

    def lend(self, msg_id: str, names: Iterable[str], gid: int) -> None:
        """Allow a group to read the attachments of a running message, in files that no
        other message has; for a thread."""
        handed_over.lend(
            f"{folder(State.RUN, msg_id)}/{ATTACH}", names, gid, self._dir_fd
        )

    def write_after(self, msg_id: str, name: str, data: bytes, ids: Ids | None) -> None:
        """Write a file of a running message that its script reads; for a thread."""
        place = beneath.open_place(folder(State.RUN, msg_id), self._dir_fd)
        try:
            durable.replace(name, data, place)
            if ids is not None:
                os.chown(name, 0, ids[1], dir_fd=place, follow_symlinks=False)
        finally:
            os.close(place)

    def stamp(self, msg_id: str) -> Stamp | None:
        """Return what changes when anybody touches the file `msg` of a message; None:
        there is none."""
        path = f"{folder(State.RUN, msg_id)}/{MSG}"
        try:
            info = os.stat(path, dir_fd=self._dir_fd, follow_symlinks=False)
        except OSError:
            return None
        return beneath.stamp_of(info)

    def write_progress(self, msg_id: str, text: str) -> None:
        """Show what a running script has said; not promised."""
        path = f"{folder(State.RUN, msg_id)}/{STATUS}"
        with contextlib.suppress(OSError):
            durable.replace(path, orjson.dumps({"job_status": text}), self._dir_fd)
