"""Attachments of a message in prep: taken, shared, removed, made durable.

Copying and hashing runs in a thread (`copy`, `verify`); names appear and change on the
owner's thread only, between them the message is marked busy by its caller.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rq import names
from rq.errors import BadInput, NoSuchMessage, NotPlain, NotWhole, RQError, WrongState
from rq.files import beneath, durable
from rq.files.durable import content
from rq.layout import ATTACH, MSG, UPLOAD_PREFIX, folder
from rq.message.fields import Attachment
from rq.message.message import Message
from rq.spool.store import Spool
from rq.words.states import State

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on its way into a message."""

    msg_id: str
    name: str
    path: str  # relative to the queue


def begin(spool: Spool, msg_id: str, name: str) -> Upload:
    """Choose where a file for `name` is copied to; the message must be in prep."""
    names.attachment(name)
    check_open(spool, msg_id)
    spool.settle(msg_id)  # in a transaction its folder may be still to be made
    attach = f"{folder(State.PREP, msg_id)}/{ATTACH}"
    durable.make_dirs(attach, spool.dir_fd)
    number = f"{os.getpid()}-{next(_numbers)}"
    return Upload(msg_id, name, f"{attach}/{UPLOAD_PREFIX}{number}")


def check_open(spool: Spool, msg_id: str) -> None:
    """Check that the attachments of a message may change; NoSuchMessage unless it is in
    prep, WrongState while it is being committed: a commit accepts what it finds on disk.
    """
    if spool.find(msg_id) is not State.PREP:
        raise NoSuchMessage("cannot find message")
    txn = spool.txns.of(msg_id)
    commits = (spool.entries[msg_id].committing, txn.deciding if txn else None)
    if commits != (None, None) or (txn is not None and txn.is_ready):
        raise WrongState("msg is being committed: nothing can be attached any more")


def copy(spool_fd: int, source: int, upload: Upload) -> Attachment:
    """Copy the open file `source`, durably; for a thread."""
    if not stat.S_ISREG(os.fstat(source).st_mode):
        raise BadInput("not a regular file")
    sha, md5, size = content.copy_hashed(source, upload.path, spool_fd)
    return Attachment(sha256=sha, md5=md5, size=size)


def digests_of(value: object) -> Attachment | None:
    """Return the digests that a client tells of a file, if they are some.

    >>> digests_of({"sha256": "0", "md5": "1", "size": 2})
    Attachment(sha256='0', md5='1', size=2)
    >>> digests_of({"sha256": "0"})
    """
    match value:
        case {"sha256": str(sha256), "md5": str(md5), "size": int(size)}:
            return Attachment(sha256=sha256, md5=md5, size=size)
    return None


def take_in(
    spool_fd: int, source: int, upload: Upload, digests: Attachment
) -> Attachment:
    """Take the open file `source` itself, durably, whose digests are `digests`; a copy of
    it where that cannot be. For a thread."""
    info = os.fstat(source)
    if not stat.S_ISREG(info.st_mode) or info.st_size != digests.size:
        raise NotWhole(f"attachment {upload.name} is not whole; attach it again")
    if content.take_in(source, upload.path, spool_fd):
        return digests
    return copy(spool_fd, source, upload)


def drop(spool: Spool, upload: Upload) -> None:
    """Remove a copied file that is not what it should be."""
    durable.unlink(upload.path, spool.dir_fd)


def end(spool: Spool, upload: Upload, attachment: Attachment) -> None:
    """Give a copied file its name, and write it into the message."""
    try:
        check_open(spool, upload.msg_id)  # much may have happened since `begin`
    except RQError:
        drop(spool, upload)
        raise
    message = spool.read(upload.msg_id)
    there = f"{folder(State.PREP, upload.msg_id)}/{ATTACH}/{upload.name}"
    durable.move(upload.path, there, spool.dir_fd)
    write(spool, message, {**message.attachments, upload.name: attachment})


def abandon(spool: Spool, upload: Upload) -> None:
    """Remove what a failed upload left."""
    durable.unlink(upload.path, spool.dir_fd)


def remove(spool: Spool, msg_id: str, name: str) -> None:
    """Remove an attachment of a message in prep."""
    names.attachment(name)
    check_open(spool, msg_id)
    message = spool.read(msg_id)
    if name not in message.attachments:
        raise NoSuchMessage(f"there is no attachment {name}")
    # In this order: a file that msg does not name is swept, a name without file is not.
    write(spool, message, {k: v for k, v in message.attachments.items() if k != name})
    durable.unlink(f"{folder(State.PREP, msg_id)}/{ATTACH}/{name}", spool.dir_fd)


def write(spool: Spool, message: Message, now: Mapping[str, Attachment]) -> None:
    """Name the attachments `now` in the file `msg` of a message in prep."""
    changed = message.with_(attachments=dict(now))
    txn = spool.txns.of(message.msg_id)
    if txn is not None:
        spool.prepare_in(txn.txn_id, changed)
        spool.settle(message.msg_id)
        return
    path = f"{folder(State.PREP, message.msg_id)}/{MSG}"
    durable.replace(path, changed.encode(), spool.dir_fd)


def verify(spool_fd: int, message: Message, deep: bool) -> None:
    """Make the attachments of a prepared message durable; for a thread.

    NotWhole: one of them is not what was attached (`deep`: its digest is compared too,
    for those that an earlier process took).
    """
    place = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    for name, wanted in message.attachments.items():
        try:
            whole = _size(f"{place}/{name}", spool_fd) == wanted.size
            if whole and deep:
                whole = content.digests(f"{place}/{name}", spool_fd)[0] == wanted.sha256
        except (FileNotFoundError, NotPlain):
            whole = False
        if not whole:
            raise NotWhole(f"attachment {name} is not whole; attach it again")
    if message.attachments:  # else there need be no such directory
        durable.sync_files(place, message.attachments, spool_fd)
    durable.sync_path(folder(State.PREP, message.msg_id), spool_fd)
    durable.sync_path("prep", spool_fd)


def _size(path: str, dir_fd: int) -> int:
    fd = content.open_attachment(path, dir_fd)
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def sweep(spool: Spool, message: Message) -> None:
    """Remove unfinished uploads of a message that is about to be committed, and files
    that a crash kept from being written into it."""
    place = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    for name in beneath.names(place, spool.dir_fd):
        if name not in message.attachments:
            durable.unlink(f"{place}/{name}", spool.dir_fd)


def share(spool: Spool, source: Path, message: Message, copied: bool) -> None:
    """Give a prepared message the attachments of the folder `source`, by hard link,
    or as files of their own when `copied`, or when others may have them as well."""
    linked = names.is_ancestors(source.name)
    if not message.attachments:
        return
    attach = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    durable.make_dirs(attach, spool.dir_fd)
    with beneath.top(source, os.O_NOFOLLOW) as source_fd:
        for name in message.attachments:
            path = f"{ATTACH}/{names.attachment(name)}"
            old = content.open_attachment(path, source_fd, linked)
            own = copied or (linked and not content.is_own(old))
            try:
                _share(old, f"{attach}/{name}", spool.dir_fd, own)
            finally:
                os.close(old)


def _share(old: int, new: str, dir_fd: int, copied: bool) -> None:
    """Give the open attachment another name, where that is wanted and can be."""
    if copied or not content.take_in(old, new, dir_fd):
        content.copy_hashed(old, new, dir_fd)
