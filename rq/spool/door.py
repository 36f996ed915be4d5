"""The other door, `new/`: what any program renames in is adopted.

The depositor's promise begins when its folder has left new/. What is malformed goes to
err with the reason; what cannot even be moved is left, and shown. What belongs to another
user is copied: it could change what it keeps open.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rq import durable, names
from rq.causes import Cause
from rq.errors import BadInput
from rq.layout import ATTACH, MSG, folder
from rq.logs import fields
from rq.message import Message, from_request
from rq.nesting import from_json
from rq.spool import attach as attaching
from rq.spool import deposits
from rq.spool.deposits import Deposit
from rq.spool.entry import Entry
from rq.spool.store import Spool
from rq.states import Event, Role, State

BATCH = 64  # folders adopted in one turn
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adopted:
    """What came through the door in one look."""

    messages: list[Message]
    left: dict[str, str]  # name: why it stays in new/


def adopt(spool: Spool, origin: str, known_left: dict[str, str]) -> Adopted:
    """Take what lies in new/: fires its events, which the caller commits.

    `origin` is what the full id of a message starts with. Attachments are hashed here,
    and those of other users copied; large ones belong on the control socket or the web.
    """
    messages: list[Message] = []
    left: dict[str, str] = {}
    taken = {one.at_new for one in spool.unsettled.values() if one.at_new}
    waiting = set(os.listdir(spool.queue.path / "new")) - taken
    # What could not be taken the last time must not stand in the way of the others.
    room = deposits.MOST_BYTES
    for name in sorted(waiting, key=lambda one: (one in known_left, one))[:BATCH]:
        if room <= 0:
            break  # the next look goes on, when others have had their turn
        try:
            message = _let_in(spool, _named(spool, name), origin)
        except OSError as error:
            left[name] = error.strerror or str(error)
        except Exception as error:  # what was taken before it must not be forgotten
            log.exception("a folder at the door could not be looked at")
            left[name] = f"RQ failed over it: {error!r:.200}"
        else:
            if message is not None:
                messages.append(message)
                room -= sum(one.size for one in message.attachments.values())
    for name in left.keys() - known_left.keys():
        log.error(
            "a folder at the door cannot be taken; it stays in new/: %s",
            fields(name=name, reason=left[name]),
        )
    return Adopted(messages, left)


def _named(spool: Spool, name: str) -> str:
    """Return the name of a deposit; one that is no UTF-8 gets another, for it could
    stand in no line of the journal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        fresh = spool.new_id()
        durable.move(f"new/{name}", f"new/{fresh}", spool.dir_fd)
        durable.sync_path("new", spool.dir_fd)
        log.warning(
            "a name at the door is no UTF-8; RQ has renamed the folder: %s",
            fields(name=name, now=fresh),
        )
        return fresh
    return name


def _let_in(spool: Spool, name: str, origin: str) -> Message | None:
    """Take a deposit, or send it to err; None when it has become no new message."""
    try:
        return _adopt_one(spool, name, origin)
    except BadInput as error:
        _refuse(spool, name, str(error))
        return None


def _adopt_one(spool: Spool, name: str, origin: str) -> Message | None:
    """Take one deposit; None when it was taken already and only has to go."""
    with deposits.opened(spool.dir_fd, f"new/{name}") as deposit:
        if deposit.foreign and (known := spool.keys.get(deposit.key)) is not None:
            _let_go(spool, name, known[0])
            return None
        msg_id = (
            name if names.is_msg_id(name) and spool.free_id(name) else spool.new_id()
        )
        message = _message(spool, deposit.msg(), msg_id, origin)
        if msg_id != name and names.is_msg_id(name):
            message = message.with_(orig_msg_id=name)
        if deposit.foreign:
            return _copy(spool, deposit, message)
        return _take(spool, deposit, message, name)


def _take(spool: Spool, deposit: Deposit, message: Message, name: str) -> Message:
    """Take the folder itself: whoever made it is our user."""
    message = message.with_(attachments=deposit.digests())
    message.encode_new()  # BadMessage before anything remembers it
    _sync(spool.dir_fd, f"new/{name}", message)
    with _at_door(spool, message.msg_id, name, message.due):
        spool.submit(message, via="door", **{"from": name})
    return message


@contextlib.contextmanager
def _at_door(spool: Spool, msg_id: str, name: str, due: float) -> Iterator[None]:
    """Know for its event that a message lies in new/; forget it if there is none."""
    entry = spool.entries[msg_id] = Entry(State.NOWHERE, None, due, 0)
    entry.at_new = name
    try:
        yield
    except BaseException:
        del spool.entries[msg_id]
        raise


def _copy(spool: Spool, deposit: Deposit, message: Message) -> Message:
    """Take a copy: another user may keep a descriptor of what it has deposited, or a
    second name, and change it at any time. The deposit goes once its line is on disk."""
    attach = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    spool.prepare(message)
    try:
        if deposit.files:
            durable.make_dirs(attach, spool.dir_fd)
        message = message.with_(attachments=deposit.copied(spool.dir_fd, attach))
        message.encode_new()
        attaching.verify(spool.dir_fd, message, deep=False)
    except Exception:
        spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        raise
    spool.submit(message, via="door", key=deposit.key)
    return message


def _let_go(spool: Spool, name: str, msg_id: str) -> None:
    """Remove a deposit that was copied, once the line of its message is on disk."""
    entry = spool.entries.get(msg_id)
    if entry is None or entry.seq <= spool.journal.position.seq:
        spool.gone.doom(f"new/{name}", f"door.{msg_id}")


def _message(spool: Spool, data: bytes, msg_id: str, origin: str) -> Message:
    asked = from_json(data, "msg")
    return from_request(asked, msg_id, spool.clock(), f"{origin}{msg_id}")


def _sync(dir_fd: int, path: str, message: Message) -> None:
    """Make the folder durable before its line promises it."""
    durable.allow(path, durable.DIR_MODE, dir_fd)
    for name in message.attachments:
        durable.allow(f"{path}/{ATTACH}/{name}", durable.ATTACHMENT_MODE, dir_fd)
    if message.attachments:
        durable.sync_files(f"{path}/{ATTACH}", message.attachments, dir_fd)
    durable.sync_files(path, [MSG], dir_fd)


def _refuse(spool: Spool, name: str, reason: str) -> None:
    """Let a malformed folder go to err, with the reason."""
    msg_id = spool.new_id()
    log.error(
        "what came through the door cannot be used; RQ moves it to err: %s",
        fields(name=name, msg_id=msg_id, reason=reason),
    )
    facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    source: dict[str, Any] = {"via": "door", "from": name}
    with _at_door(spool, msg_id, name, 0.0):
        spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **source)
