"""What a script of another user gets of the folder of its message: a directory of its own,
and copies of attachments that its group can read. All else stays RQ's."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from rq.errors import NotPlain
from rq.files import beneath, durable
from rq.files.durable import content
from rq.layout import BATCH, JOB, UPLOAD_PREFIX
from rq.words.states import State

Ids = tuple[int, int]  # of a user and its group
_OWN_DIR, _PASS_DIR, _READ_DIR = 0o700, 0o710, 0o750


def let_pass(queue: Path) -> None:
    """Allow other users to pass through the directories of a queue that lead to those
    which their scripts work in; they list none of them."""
    for path in (queue.parent, queue, queue / State.RUN, queue / BATCH):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if not mode & stat.S_IXOTH:
            os.chmod(path, mode | stat.S_IXOTH)


def fits(place: int, job: int, ids: Ids | None) -> bool:
    """Whether the open `job/` in the open folder of a message belongs to whom its script
    runs as; `ids`: not as our user."""
    if ids is None:
        return not _is_handed_over(place) or os.geteuid() != 0
    if os.geteuid() != 0:
        return True
    info = os.fstat(job)
    return (info.st_uid, info.st_gid) == ids and _is_handed_over(place)


def _is_handed_over(place: int) -> bool:
    """Whether a script of another user works, or has worked, in the open folder of a
    message; that folder is ours, so no script can make it seem so."""
    return stat.S_IMODE(os.fstat(place).st_mode) == _PASS_DIR


def may_be_handed_over(path: str, dir_fd: int) -> bool:
    """As `_is_handed_over`, of a folder that is not open; one that is gone may be."""
    try:
        info = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return stat.S_IMODE(info.st_mode) == _PASS_DIR


def check_owner(fd: int, path: str, dir_fd: int) -> None:
    """NotPlain for a file below `job/` that does not belong to the user of its script,
    who may move what only root can read from a directory of its own to there."""
    head, below, _ = path.partition(f"/{JOB}/")
    if not below:
        return
    place = beneath.open_place(head, dir_fd)
    try:
        if not _is_handed_over(place):
            return
        job = os.stat(JOB, dir_fd=place, follow_symlinks=False)
    finally:
        os.close(place)
    if os.fstat(fd).st_uid != job.st_uid:
        text = "it does not belong to the user whose script had this directory"
        raise NotPlain(errno.EACCES, text, path)


def renew(place: int, ids: Ids | None) -> int:
    """Make `job/` in the open folder of a message for a script of another user than the
    one it belongs to; return a descriptor. An earlier one that is not empty keeps its
    content under another name: it would not be ours to judge whose is what in it."""
    if not durable.remove_dir(JOB, place):
        number = next(n for n in itertools.count(1) if is_free(f"{JOB}.{n}", place))
        durable.move(JOB, f"{JOB}.{number}", place)
    durable.make_dir(JOB, place)
    if ids is None:
        durable.give(".", (0, os.getegid()), durable.DIR_MODE, place)
    else:
        durable.give(".", (0, ids[1]), _PASS_DIR, place)
        durable.give(JOB, ids, _OWN_DIR, place)
    return beneath.open_place(JOB, place)


def is_free(name: str, place: int) -> bool:
    """Whether nothing in an open directory has a name, be it a link that leads nowhere."""
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False


def take_back(path: str, dir_fd: int) -> None:
    """Take a directory of a batch back, whichever user an earlier start has given it
    to."""
    if os.geteuid() == 0:
        ours = (0, os.getegid())
        durable.give(path, ours, durable.DIR_MODE, dir_fd)


def hand_batch(path: str, name: str, ids: Ids, dir_fd: int) -> None:
    """Give a user the directory of a batch, and its group the file in it to read."""
    os.chown(f"{path}/{name}", 0, ids[1], dir_fd=dir_fd, follow_symlinks=False)
    durable.give(path, ids, _OWN_DIR, dir_fd)


def lend(attach: str, names: Iterable[str], gid: int, dir_fd: int) -> None:
    """Allow a group to read attachments of a message, each a file that no other message
    has: RQ's content would else be read, under another name, by all who may read this
    one."""
    place = beneath.open_place(attach, dir_fd)
    try:
        durable.give(".", (0, gid), _READ_DIR, place)
        for name in names:
            _lend(name, gid, place)
    finally:
        os.close(place)


def _lend(name: str, gid: int, place: int) -> None:
    fd = content.open_attachment(name, place)
    try:
        if os.fstat(fd).st_nlink == 1:
            os.fchown(fd, 0, gid)
            return
        own = f"{UPLOAD_PREFIX}own"
        durable.unlink(own, place)  # of an attempt that was cut short
        content.copy_hashed(fd, own, place)
        os.chown(own, 0, gid, dir_fd=place, follow_symlinks=False)
        durable.move(own, name, place)
    finally:
        os.close(fd)
