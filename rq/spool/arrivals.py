"""What has come into `new/`: read, hashed and made durable in a thread."""

from __future__ import annotations

import heapq
import os
from collections.abc import Container
from dataclasses import dataclass, field

from rq import durable
from rq.layout import ATTACH, MSG
from rq.message import Attachment, Message
from rq.nesting import Json, from_json
from rq.spool import attach as attaching
from rq.spool import deposits

LISTED = 2048  # names that one listing gives: each costs as much as there are


@dataclass(frozen=True, slots=True)
class Arrival:
    """A deposit as a thread has found it: all of it on disk, unless it is foreign."""

    name: str
    inode: int = 0
    foreign: bool = False
    trusted: bool = False  # all of it belongs to our own user, or to root
    key: str = ""
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
        with deposits.opened(dir_fd, f"new/{name}") as deposit:
            request = from_json(deposit.msg(), "msg")
            attachments = {} if deposit.foreign else deposit.digests()
            if not deposit.foreign:
                _sync(dir_fd, f"new/{name}", attachments)
            inode = os.fstat(deposit.fd).st_ino
            about = inode, deposit.foreign, deposit.trusted, deposit.key
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
    with deposits.opened(dir_fd, f"new/{arrival.name}") as deposit:
        if deposit.key != arrival.key:
            raise OSError(None, "it changes while it is looked at")
        if deposit.files:
            durable.make_dirs(attach, dir_fd)
        copied = deposit.copied(dir_fd, attach)
    attaching.verify(dir_fd, message.with_(attachments=copied), deep=False)
    return copied
