"""The other door, `new/`: what any program renames in is adopted.

The depositor's promise begins when its folder has left new/. What is malformed goes to
err with the reason; what cannot even be moved is left, and shown.
"""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from typing import Any

import orjson

from rq import durable, names
from rq.causes import Cause
from rq.durable import content
from rq.errors import BadInput, BadMessage
from rq.layout import ATTACH, JOB, MSG
from rq.logs import fields
from rq.message import Attachment, Message, from_request
from rq.spool.entry import Entry
from rq.spool.folders import read_file
from rq.spool.store import Spool
from rq.states import Event, Role, State

BATCH = 64  # folders adopted in one turn
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adopted:
    """What came through the door in one look."""

    messages: list[Message]
    left: dict[str, str]  # name: why it stays in new/


def adopt(spool: Spool, origin: str, known_left: dict[str, str]) -> Adopted:
    """Take what lies in new/: fires its events, which the caller commits.

    `origin` is what the full id of a message starts with. Attachments are hashed here;
    large ones belong on the control socket or the web.
    """
    messages: list[Message] = []
    left: dict[str, str] = {}
    taken = {one.at_new for one in spool.unsettled.values() if one.at_new}
    waiting = set(os.listdir(spool.queue.path / "new")) - taken
    # What could not be taken the last time must not stand in the way of the others.
    for name in sorted(waiting, key=lambda one: (one in known_left, one))[:BATCH]:
        try:
            messages.append(_adopt_one(spool, name, origin))
        except BadInput as error:
            _refuse(spool, name, str(error))
        except OSError as error:
            left[name] = error.strerror or str(error)
    for name in left.keys() - known_left.keys():
        _log.error(
            "a folder at the door cannot be taken; it stays in new/: %s",
            fields(name=name, reason=left[name]),
        )
    return Adopted(messages, left)


def _adopt_one(spool: Spool, name: str, origin: str) -> Message:
    path = f"new/{name}"
    if not stat.S_ISDIR(_stat(spool.dir_fd, path).st_mode):
        raise BadInput("it is not a directory")
    if not os.access(spool.queue.path / path, os.W_OK | os.X_OK):
        raise PermissionError(1, "RQ may not write to the folder, so cannot move it")
    _check_folder(spool.dir_fd, path)
    msg_id = name if names.is_msg_id(name) and spool.free_id(name) else spool.new_id()
    try:
        asked = read_file(f"{path}/{MSG}", spool.dir_fd)
    except FileNotFoundError:
        raise BadMessage("msg is missing") from None
    message = _message(spool, asked, msg_id, origin)
    if msg_id != name and names.is_msg_id(name):
        message = message.with_(orig_msg_id=name)
    message = message.with_(attachments=_attachments(spool.dir_fd, path))
    message.encode_new()  # BadMessage before anything remembers it
    _sync(spool.dir_fd, path, message)
    entry = spool.entries[msg_id] = Entry(State.NOWHERE, None, message.due, 0)
    entry.at_new = name
    spool.submit(message, via="door", **{"from": name})
    return message


def _message(spool: Spool, data: bytes, msg_id: str, origin: str) -> Message:
    try:
        asked = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadMessage(f"msg is not JSON: {error}") from None
    return from_request(asked, msg_id, spool.clock(), f"{origin}{msg_id}")


def _check_folder(dir_fd: int, path: str) -> None:
    """Refuse all but plain files with names that are allowed."""
    for name in _list(dir_fd, path):
        mode = _stat(dir_fd, f"{path}/{name}").st_mode
        if name in (ATTACH, JOB) and stat.S_ISDIR(mode):
            continue
        if name != MSG and not name.startswith("."):
            raise BadInput(f"unexpected file {name!r:.80}; it may hold msg and attach/")
        _check_file(dir_fd, f"{path}/{name}")
    for name in _list(dir_fd, f"{path}/{ATTACH}"):
        names.attachment(name)
        _check_file(dir_fd, f"{path}/{ATTACH}/{name}")
    for name in _list(dir_fd, f"{path}/{JOB}"):  # its script's log is appended to
        _check_file(dir_fd, f"{path}/{JOB}/{name}")


def _check_file(dir_fd: int, path: str) -> None:
    info = _stat(dir_fd, path)
    if not stat.S_ISREG(info.st_mode):
        raise BadInput(f"{os.path.basename(path)} is not a regular file")
    if info.st_nlink != 1:
        raise BadInput(f"{os.path.basename(path)} has {info.st_nlink} names, not one")


def _stat(dir_fd: int, path: str) -> os.stat_result:
    return os.stat(path, dir_fd=dir_fd, follow_symlinks=False)


def _list(dir_fd: int, path: str) -> list[str]:
    try:
        fd = os.open(
            path,
            os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
            dir_fd=dir_fd,
        )
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise BadInput(f"{os.path.basename(path)} is not a directory") from None
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _attachments(dir_fd: int, path: str) -> dict[str, Attachment]:
    found = {}
    for name in sorted(_list(dir_fd, f"{path}/{ATTACH}")):
        sha, md5, size = content.digests(f"{path}/{ATTACH}/{name}", dir_fd)
        durable.allow(f"{path}/{ATTACH}/{name}", durable.ATTACHMENT_MODE, dir_fd)
        found[name] = Attachment(sha256=sha, md5=md5, size=size)
    return found


def _sync(dir_fd: int, path: str, message: Message) -> None:
    """Make the folder durable before its line promises it."""
    durable.allow(path, durable.DIR_MODE, dir_fd)
    if message.attachments:
        durable.sync_files(f"{path}/{ATTACH}", message.attachments, dir_fd)
    durable.sync_files(path, [MSG], dir_fd)


def _refuse(spool: Spool, name: str, reason: str) -> None:
    """Let a malformed folder go to err, with the reason."""
    msg_id = spool.new_id()
    _log.error(
        "what came through the door cannot be used; RQ moves it to err: %s",
        fields(name=name, msg_id=msg_id, reason=reason),
    )
    entry = spool.entries[msg_id] = Entry(State.NOWHERE, None, 0.0, 0)
    entry.at_new = name
    facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    source: dict[str, Any] = {"via": "door", "from": name}
    spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **source)
