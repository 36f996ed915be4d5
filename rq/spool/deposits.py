"""Folders in `new/`: what is in one and whose it is, looked at by descriptors; and what
threads of the door do with them: list, read, hash, make durable, copy.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import os
import stat
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import islice

from rq import names
from rq.errors import BadInput, BadMessage, NotPlain, TooLarge
from rq.files import beneath, durable
from rq.files.durable import content
from rq.layout import AFTER_LIST, ATTACH, JOB, MSG
from rq.message.fields import Attachment
from rq.message.message import MESSAGE_LIMIT, Message
from rq.proc import users
from rq.spool import after_list
from rq.spool import attach as attaching
from rq.words.nesting import Json, from_json

MOST_FILES = 10_000
MOST_BYTES = 256 * 1024 * 1024  # of another user's attachments, copied in one turn
LISTED = 2048  # names that one listing gives: each costs as much as there are

_name_of = functools.lru_cache(maxsize=256)(users.kernel_name)


@dataclass(frozen=True, slots=True)
class Deposit:
    """What any program has renamed into `new/`, held open."""

    fd: int
    files: tuple[str, ...]  # attachments
    foreign: bool  # some of it belongs to another user
    trusted: bool  # and that is root at the most
    key: str  # tells it from all others as long as it lies there
    uid: int  # whose its file `msg` is

    def msg(self) -> bytes:
        """Return the content of `msg`, which is looked at before it is read."""
        try:
            fd = beneath.open_plain(MSG, self.fd)
        except FileNotFoundError:
            raise BadMessage("msg is missing") from None
        except NotPlain as error:
            raise BadInput(f"msg: {error.strerror}") from None
        try:
            size = os.fstat(fd).st_size
            if size > MESSAGE_LIMIT:
                raise TooLarge(
                    f"msg has {size} bytes of JSON, at most {MESSAGE_LIMIT} can be "
                    "taken; send large data as an attachment"
                )
            return beneath.content(fd, MSG, MESSAGE_LIMIT)
        finally:
            os.close(fd)

    def digests(self) -> dict[str, Attachment]:
        """Return its attachments, as they lie there."""
        attachments = {}
        for name in self.files:
            sha, md5, size = content.digests(f"{ATTACH}/{name}", self.fd)
            attachments[name] = Attachment(sha256=sha, md5=md5, size=size)
        return attachments

    def _check_sizes(self) -> None:
        paths = (f"{ATTACH}/{name}" for name in self.files)
        infos = (os.stat(p, dir_fd=self.fd, follow_symlinks=False) for p in paths)
        if sum(info.st_size for info in infos) > MOST_BYTES:
            raise _too_large()

    def copied(self, dir_fd: int, path: str) -> dict[str, Attachment]:
        """Copy its attachments into the directory `path` below `dir_fd`, durably."""
        self._check_sizes()  # before anything is copied for nothing
        attachments, left = {}, MOST_BYTES
        for name in self.files:
            source = beneath.open_plain(f"{ATTACH}/{name}", self.fd)
            try:
                size = os.fstat(source).st_size
                left -= size
                if left < 0:
                    raise _too_large()
                copied = content.copy_hashed(source, f"{path}/{name}", dir_fd, size)
            finally:
                os.close(source)
            attachments[name] = Attachment(
                sha256=copied[0], md5=copied[1], size=copied[2]
            )
        return attachments


def _too_large() -> TooLarge:
    return TooLarge(
        f"another user's attachments have more than {MOST_BYTES} bytes; send them by "
        "`rq send` or the web"
    )


@contextlib.contextmanager
def opened(dir_fd: int, path: str) -> Iterator[Deposit]:
    """Look at a deposit; BadInput says why it cannot be a message."""
    try:
        fd = beneath.open_dir(path, dir_fd)
    except (NotADirectoryError, NotPlain):
        raise BadInput("it is not a directory") from None
    try:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd):
            why = "RQ may not write to the folder, so cannot move it"
            raise PermissionError(1, why)
        yield _looked_at(fd)
    finally:
        os.close(fd)


def _looked_at(fd: int) -> Deposit:
    """Refuse all but plain files with names that are allowed."""
    info = os.fstat(fd)
    owners, uid = {info.st_uid}, info.st_uid
    for name in _listed(fd):
        entry = os.stat(name, dir_fd=fd, follow_symlinks=False)
        owners.add(entry.st_uid)
        uid = entry.st_uid if name == MSG else uid
        if name in (ATTACH, JOB) and stat.S_ISDIR(entry.st_mode):
            continue
        if name not in (MSG, AFTER_LIST) and not name.startswith("."):
            raise BadInput(f"unexpected file {name!r:.80}; it may hold msg and attach/")
        _check(name, entry)
    files = _inside(fd, ATTACH, owners)
    for name in files:
        names.attachment(name)
    _inside(fd, JOB, owners)  # its script's log is appended to
    key = f"door/{info.st_ino:x}.{info.st_ctime_ns:x}"
    ours = os.geteuid()
    whose = owners != {ours}, owners <= {ours, 0}
    return Deposit(fd, tuple(sorted(files)), *whose, key, uid)


def _inside(fd: int, directory: str, owners: set[int]) -> list[str]:
    """Return the names in a directory of the deposit; note who owns what in it."""
    try:
        below = beneath.open_dir(directory, fd)
    except FileNotFoundError:
        return []
    except (NotADirectoryError, NotPlain):
        raise BadInput(f"{directory} is not a directory") from None
    try:
        listed = _listed(below)
        for name in listed:
            entry = os.stat(name, dir_fd=below, follow_symlinks=False)
            owners.add(entry.st_uid)
            _check(name, entry)
        return listed
    finally:
        os.close(below)


def _listed(fd: int) -> list[str]:
    with os.scandir(fd) as entries:
        listed = [entry.name for entry in islice(entries, MOST_FILES + 1)]
    if len(listed) > MOST_FILES:
        raise BadInput(f"it holds more than {MOST_FILES} files")
    return listed


def _check(name: str, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise BadInput(f"{name!r:.80} is not a regular file")
    if info.st_nlink != 1:
        raise BadInput(f"{name!r:.80} has {info.st_nlink} names, not one")


# ---- in a thread of the door


@dataclass(frozen=True, slots=True)
class Arrival:
    """A deposit as a thread has found it: all of it on disk, unless it is foreign."""

    name: str
    inode: int = 0
    foreign: bool = False
    trusted: bool = False  # all of it belongs to our own user, or to root
    key: str = ""
    by: str = ""  # the name of the user whose message it is
    request: Json = None  # the content of its file msg
    attachments: dict[str, Attachment] = field(default_factory=dict)
    error: Exception | None = None


def waiting(place: str, taken: Container[str], known_left: Container[str]) -> list[str]:
    """Return the first names at the door. What could not be taken the last time must
    not stand in the way of the others."""
    names = (name for name in os.listdir(place) if name not in taken)
    return heapq.nsmallest(LISTED, names, key=lambda name: (name in known_left, name))


def rename(dir_fd: int, name: str, fresh: str) -> None:
    """Give a deposit another name, durably."""
    durable.move(f"new/{name}", f"new/{fresh}", dir_fd)
    durable.sync_path("new", dir_fd)


def look_at(dir_fd: int, name: str) -> Arrival:
    """Look at a deposit; one of our own user's is durable then, but for its name."""
    try:
        with opened(dir_fd, f"new/{name}") as deposit:
            request = from_json(deposit.msg(), "msg")
            request = after_list.in_deposit(request, deposit.fd)
            attachments = {} if deposit.foreign else deposit.digests()
            if not deposit.foreign:
                _sync(dir_fd, f"new/{name}", attachments)
            inode = os.fstat(deposit.fd).st_ino
            by = _name_of(deposit.uid)
            about = inode, deposit.foreign, deposit.trusted, deposit.key, by
            return Arrival(name, *about, request, attachments)
    except Exception as error:  # noqa: BLE001 - raised again when its turn comes
        return Arrival(name, error=error)


def _sync(dir_fd: int, path: str, attachments: dict[str, Attachment]) -> None:
    """Make the folder durable before its line promises it."""
    durable.allow(path, durable.DIR_MODE, dir_fd)
    for name in attachments:
        durable.allow(f"{path}/{ATTACH}/{name}", durable.ATTACHMENT_MODE, dir_fd)
        durable.sync_path(f"{path}/{ATTACH}/{name}", dir_fd)
    if attachments:
        durable.sync_path(f"{path}/{ATTACH}", dir_fd)
    durable.sync_path(f"{path}/{MSG}", dir_fd)
    durable.sync_path(path, dir_fd)


def copy(
    dir_fd: int, arrival: Arrival, message: Message, attach: str
) -> dict[str, Attachment]:
    """Copy another user's attachments, durably; OSError if they are not those any more
    that were looked at."""
    with opened(dir_fd, f"new/{arrival.name}") as deposit:
        if deposit.key != arrival.key:
            raise OSError(None, "it changes while it is looked at")
        if deposit.files:
            durable.make_dirs(attach, dir_fd)
        copied = deposit.copied(dir_fd, attach)
    attaching.verify(dir_fd, message.with_(attachments=copied), deep=False)
    return copied
