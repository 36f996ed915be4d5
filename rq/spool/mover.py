"""Moves the folder of one message to where the journal says that it belongs.

The folder may not exist yet; it may lie in its old place or in `new/`; it may be half
made, or its script or a person may have changed or removed it. Recovery uses the same
code. Files that an attempt elsewhere has handed in get their place in `attach/` then.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Iterable

from rq.files import beneath, durable
from rq.layout import ATTACH, JOB, MSG, STATUS, QueueDir, folder
from rq.logs import fields
from rq.message.message import Message
from rq.message.table import REBUILT
from rq.spool import after_list, attempt_files, folders
from rq.spool.entry import Entry
from rq.spool.gone import Gone
from rq.words.states import State

REFUSED = "refused"  # in a folder in err: what came through the door
# Errors that a script can cause by what it does to its own folder: RQ repairs these, and
# not those of the disk.
_RUINED = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR,
                     errno.ELOOP, errno.ENXIO, errno.EBUSY, errno.EINVAL})  # fmt: skip
# Errors of a rename when something else has the name already.
_IN_THE_WAY = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})

_log = logging.getLogger(__name__)
RESULTS = "results"


class Mover:
    """Makes and moves the folders of one queue."""

    def __init__(self, queue: QueueDir, dir_fd: int, gone: Gone) -> None:
        self._queue = queue
        self._dir_fd = dir_fd
        self._gone = gone

    def settle(self, msg_id: str, entry: Entry, spare: Message | None) -> bool:
        """Make the folder of a message agree with its state; OSError when it cannot.

        `spare` makes it again if a hand has removed it; False: there was none, and RQ
        forgets the message.
        """
        remembered = True
        if entry.at_new is not None and entry.body is None:
            self._enclose(msg_id, entry)
        if entry.state is State.GONE:
            self._remove(msg_id, entry)
        elif entry.at is None and entry.at_new is None:
            self._make(msg_id, entry)
        else:
            remembered = self._bring(msg_id, entry, spare)
        entry.wrote()
        entry.at = entry.state
        return remembered

    def _remove(self, msg_id: str, entry: Entry) -> None:
        path = entry.place(msg_id)
        if path is not None:
            self._gone.doom(path, msg_id)

    def _enclose(self, msg_id: str, entry: Entry) -> None:
        """Put a refused deposit, as it is, into a folder of our own in err.

        It may be a file, a symlink or a folder full of links: nothing is written into it.
        """
        place = folder(State.ERR, msg_id)
        with contextlib.suppress(FileExistsError):
            durable.make_dir(place, self._dir_fd)
        with contextlib.suppress(FileNotFoundError):
            durable.move(f"new/{entry.at_new}", f"{place}/{REFUSED}", self._dir_fd)
        entry.at, entry.at_new = State.ERR, None

    def _make(self, msg_id: str, entry: Entry) -> None:
        """Make a folder that is nowhere."""
        path = folder(entry.state, msg_id)
        try:
            durable.make_dir(path, self._dir_fd)
        except FileExistsError:  # half made by an earlier try, or in the way
            if not self._is_directory(path):
                self._clear(msg_id, path)
                durable.make_dir(path, self._dir_fd)
        except FileNotFoundError:
            durable.make_dirs(path, self._dir_fd)
        entry.at = entry.state  # though its files fail: no second one is made elsewhere
        durable.crash_point("make:before-msg")
        if entry.body is not None:
            durable.write_new(f"{path}/{MSG}", entry.body, self._dir_fd)
            after_list.make_again(entry.after, path, self._dir_fd)
        if entry.status is not None:
            durable.write_new(f"{path}/{STATUS}", entry.status, self._dir_fd)
        if entry.attempts is not None:
            attempt_files.write(path, entry.attempts, False, self._dir_fd)

    def _bring(self, msg_id: str, entry: Entry, spare: Message | None) -> bool:
        """Write what changed into a folder and move it where it belongs."""
        here = entry.place(msg_id) or ""
        there = folder(entry.state, msg_id)
        try:
            try:
                self._carry(msg_id, entry, here, there)
            except OSError as error:
                if error.errno not in _RUINED:
                    raise
                _log.warning(
                    "a folder cannot be used as its script left it; RQ mends it: %s",
                    fields(msg_id=msg_id, reason=error.strerror),
                )
                durable.clear_way(here, (MSG, STATUS), self._dir_fd)
                self._carry(msg_id, entry, here, there)
        except FileNotFoundError:
            return self._remake(msg_id, entry, here, spare)
        return True

    def _carry(self, msg_id: str, entry: Entry, here: str, there: str) -> None:
        if entry.results is not None:
            bring_results(here, *entry.results, self._dir_fd)
        if entry.attempts is not None:
            attempt_files.write(here, entry.attempts, entry.written, self._dir_fd)
        if entry.body is None or entry.status is None:
            self._write(entry, here, rests=here == there)
        else:
            self._write_both(entry, here)
        if here != there:
            self._move(msg_id, here, there)

    def _write(self, entry: Entry, here: str, *, rests: bool) -> None:
        """Write what changed into a folder; `rests`: it is in its last place."""
        body, status, dir_fd = entry.body, entry.status, self._dir_fd
        msg, said = f"{here}/{MSG}", f"{here}/{STATUS}"
        if body is not None and not self._is_there(entry, msg, body, dir_fd):
            durable.replace(msg, body, dir_fd)
        if status is not None and not self._is_there(entry, said, status, dir_fd):
            # In its last place it may be an old one that a power cut has torn.
            write = durable.replace if rests else durable.write_new
            write(said, status, dir_fd)

    def _write_both(self, entry: Entry, here: str) -> None:
        """Write both files of a message that has been tried, into those that it has.

        ext4 takes up to a millisecond to make a file while it frees many others.
        What a crash tears is written again, as the journal tells it.
        """
        with beneath.parent(f"{here}/{MSG}", self._dir_fd) as (place, _):
            for name, data in ((MSG, entry.body), (STATUS, entry.status)):
                if data and not self._is_there(entry, name, data, place):
                    durable.overwrite(name, data, place)

    def _move(self, msg_id: str, here: str, there: str) -> None:
        try:
            durable.move(here, there, self._dir_fd)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            try:
                self._clear(msg_id, there)
            except FileNotFoundError:  # it is a directory above that is none
                raise error from None
            durable.move(here, there, self._dir_fd)

    def _is_directory(self, path: str) -> bool:
        info = os.stat(path, dir_fd=self._dir_fd, follow_symlinks=False)
        return stat.S_ISDIR(info.st_mode)

    def _clear(self, msg_id: str, path: str) -> None:
        """Remove what lies where the folder of a message belongs."""
        os.stat(path, dir_fd=self._dir_fd, follow_symlinks=False)
        _log.warning(
            "something else lies where the folder of a message belongs; RQ moves it to "
            "gone/: %s",
            fields(msg_id=msg_id, path=path),
        )
        self._gone.doom(path, f"{msg_id}.in-the-way")

    def _is_there(self, entry: Entry, path: str, data: bytes, dir_fd: int) -> bool:
        """Whether recovery need not write a file again: no power cut came between, and
        it says the same (its size alone would not tell a new due from an old one)."""
        if not entry.written:
            return False
        try:
            return folders.read_file(path, dir_fd) == data
        except OSError:
            return False

    def _remake(
        self, msg_id: str, entry: Entry, here: str, spare: Message | None
    ) -> bool:
        """Make again a folder that a hand or a script has removed; False: from what?"""
        if entry.body is None and spare is None:
            _log.error(
                "the folder of a message is gone, removed by hand; RQ forgets it: %s",
                fields(msg_id=msg_id, was=here, state=entry.state),
            )
            return False
        _log.warning(
            "the folder of a message was removed by hand; RQ makes it again: %s",
            fields(msg_id=msg_id, was=here, state=entry.state),
        )
        if spare is not None:
            again = {**spare.extra, REBUILT: True}
            entry.body = spare.with_(extra=again, attachments={}).encode()
        entry.at = entry.at_new = None
        self._make(msg_id, entry)
        return True


# ---- files of an attempt elsewhere


def results_of(attempt: int) -> str:
    """Return where the files of an attempt lie, in the folder of its message."""
    return f"{JOB}/{RESULTS}/{attempt}"


def bring_results(here: str, attempt: int, names: Iterable[str], dir_fd: int) -> None:
    """Make files of an attempt attachments of the folder `here`.

    They keep their first name, which was synced: a rename between directories may lose
    both names in a power cut.
    """
    with contextlib.ExitStack() as opened:
        try:
            source = _opened(f"{here}/{results_of(attempt)}", dir_fd, opened)
        except (FileNotFoundError, NotADirectoryError):
            return
        with contextlib.suppress(FileExistsError):
            durable.make_dir(ATTACH, _opened(here, dir_fd, opened))
        target = _opened(f"{here}/{ATTACH}", dir_fd, opened)
        for name in names:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                durable.link(name, name, source, target)


def _opened(path: str, dir_fd: int, opened: contextlib.ExitStack) -> int:
    fd = beneath.open_place(path, dir_fd)
    opened.callback(os.close, fd)
    return fd
