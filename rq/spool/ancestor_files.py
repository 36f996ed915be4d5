"""Attachments of messages of the ancestor, whose file `msg` does not name them.

Every file in `attach/` belongs to such a message. If RQ cannot pass one of them on, it
refuses the message and says why: it never leaves a file out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rq import names
from rq.errors import BadInput, NotPlain, RQError
from rq.files import beneath, durable
from rq.files.durable import ATTACHMENT_MODE, content
from rq.layout import ATTACH, MSG, UPLOAD_PREFIX, folder
from rq.message.fields import Attachment
from rq.message.message import Message, from_disk
from rq.spool import attach, folders
from rq.spool.store import Spool
from rq.words.states import State

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Taken:
    """A file that is about to be named in `msg`."""

    name: str
    attachment: Attachment
    copy: str | None  # where the file lies that takes its place, relative to the queue


def digests(place: Path) -> dict[str, Attachment]:
    """Return what lies in `attach/` of the folder `place`; for a thread.

    BadInput says which file cannot travel with its message, and why.
    """
    attachments = {}
    with beneath.top(place, os.O_NOFOLLOW) as top:
        for name in _listed(ATTACH, top):
            _check(name)
            try:
                digest = content.digests(f"{ATTACH}/{name}", top, linked=True)
            except NotPlain as error:
                raise _not_plain(name, error) from None
            attachments[name] = _attachment(digest)
    return attachments


def take(spool_fd: int, msg_id: str, named: Collection[str]) -> list[Taken]:
    """Hash the files of a message in prep that its `msg` has not `named` yet, and copy
    those that have a second name, so that no sender can change them. For a thread.

    A file that cannot be accepted is not returned; `check` then refuses the message.
    """
    place = f"{folder(State.PREP, msg_id)}/{ATTACH}"
    wanted = [name for name in _listed(place, spool_fd) if name not in named]
    return list(_taken(spool_fd, place, filter(names.is_attachment, wanted)))


def _taken(spool_fd: int, place: str, wanted: Iterator[str]) -> Iterator[Taken]:
    for name in wanted:
        path = f"{place}/{name}"
        try:
            source = content.open_attachment(path, spool_fd, linked=True)
        except (NotPlain, FileNotFoundError):
            continue
        try:
            if content.is_own(source):
                durable.allow(path, ATTACHMENT_MODE, spool_fd)
                yield Taken(name, _attachment(content.digests(path, spool_fd)), None)
            else:
                copy = f"{place}/{UPLOAD_PREFIX}own-{os.getpid()}-{next(_numbers)}"
                attachment = _attachment(content.copy_hashed(source, copy, spool_fd))
                yield Taken(name, attachment, copy)
        finally:
            os.close(source)


def adopt(spool_fd: int, place: str, msg_id: str, most: int) -> int:
    """Name in `msg` what lies in `attach/` of the folder `place`, durably, and make it
    RQ's own; return how many bytes that is, 0 when there is nothing to do, or more than
    `most`: they are named when they are wanted.

    BadInput says which file cannot travel; nothing is named then.
    """
    files = f"{place}/{ATTACH}"
    if not (listed := _listed(files, spool_fd)):
        return 0
    message = from_disk(folders.read_file(f"{place}/{MSG}", spool_fd), msg_id, 0.0)
    wanted = [name for name in listed if name not in message.attachments]
    if not wanted or _bytes(files, wanted, spool_fd) > most:
        return 0
    taken = _made_own(spool_fd, files, wanted)
    named = {**message.attachments, **{file.name: file.attachment for file in taken}}
    body = message.with_(attachments=named).encode()
    durable.replace_durable(f"{place}/{MSG}", body, spool_fd)
    return sum(file.attachment.size for file in taken)


def _made_own(spool_fd: int, files: str, wanted: list[str]) -> list[Taken]:
    """Make files of the directory `files` those of RQ, durably; BadInput: none is."""
    for name in wanted:
        _check(name)
    taken = list(_taken(spool_fd, files, iter(wanted)))
    copies = {file.copy: file.name for file in taken if file.copy is not None}
    if missing := set(wanted) - {file.name for file in taken}:
        for copy in copies:
            durable.unlink(copy, spool_fd)
        raise _not_plain(min(missing), "it is not a regular file")
    for copy, name in copies.items():
        durable.move(copy, f"{files}/{name}", spool_fd)
    durable.sync_path(files, spool_fd)
    return taken


def _bytes(files: str, wanted: list[str], dir_fd: int) -> int:
    paths = (f"{files}/{name}" for name in wanted)
    infos = (os.stat(path, dir_fd=dir_fd, follow_symlinks=False) for path in paths)
    return sum(info.st_size for info in infos)


def give_names(spool: Spool, message: Message, taken: Collection[Taken]) -> Message:
    """Put files that `take` has returned into their places; return the message with
    their names."""
    place = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    named = dict(message.attachments)
    for file in taken:
        if file.name in named:  # attached again meanwhile
            drop(spool, [file])
            continue
        if file.copy is not None:
            durable.move(file.copy, f"{place}/{file.name}", spool.dir_fd)
        named[file.name] = file.attachment
    return message.with_(attachments=named)


def write_names(spool: Spool, msg_id: str, taken: Collection[Taken]) -> None:
    """As `give_names`, and write it into `msg`; a failure when it is committed."""
    try:
        attach.check_open(spool, msg_id)  # much may have happened meanwhile
    except RQError:
        drop(spool, taken)
        raise
    if taken:
        message = give_names(spool, spool.read(msg_id), taken)
        attach.write(spool, message, message.attachments)


def drop(spool: Spool, taken: Collection[Taken]) -> None:
    """Remove the copies of files that are not to be named."""
    for file in taken:
        if file.copy is not None:
            durable.unlink(file.copy, spool.dir_fd)


def check(spool: Spool, message: Message) -> None:
    """BadInput when a file of a message in prep is not named in it: the commit would
    lose it."""
    place = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    for name in _listed(place, spool.dir_fd):
        if name not in message.attachments:
            _check(name)
            raise _not_plain(name, "it is not a regular file of our user")


def _listed(place: str, dir_fd: int) -> list[str]:
    """Return what the ancestor counts as an attachment: all without a dot in front."""
    return sorted(n for n in beneath.names(place, dir_fd) if not n.startswith("."))


def _check(name: str) -> None:
    try:
        names.attachment(name)
    except BadInput as error:
        raise BadInput(f"{error}; rename the file in its {ATTACH}/") from None


def _not_plain(name: str, why: object) -> BadInput:
    return BadInput(
        f"attachment {name} cannot be read: {why}; put a copy of it in its place"
    )


def _attachment(digests: tuple[str, str, int]) -> Attachment:
    sha, md5, size = digests
    return Attachment(sha256=sha, md5=md5, size=size)
