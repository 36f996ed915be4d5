"""The other door, `new/`: what any program renames in is adopted.

The depositor's promise begins when its folder has left new/. What is malformed goes to
err with the reason; what cannot even be moved is left, and shown. What belongs to another
user is copied: it could change what it keeps open.
"""

from __future__ import annotations

import logging
import os
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
_log = logging.getLogger(__name__)


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
            message = _adopt_one(spool, name, origin)
            if message is not None:
                messages.append(message)
                room -= sum(one.size for one in message.attachments.values())
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
    entry = Entry(State.NOWHERE, None, message.due, 0)
    entry.at_new = name
    spool.entries[message.msg_id] = entry
    spool.submit(message, via="door", **{"from": name})
    return message


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
    except (BadInput, OSError):
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
    _log.error(
        "what came through the door cannot be used; RQ moves it to err: %s",
        fields(name=name, msg_id=msg_id, reason=reason),
    )
    entry = spool.entries[msg_id] = Entry(State.NOWHERE, None, 0.0, 0)
    entry.at_new = name
    facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    source: dict[str, Any] = {"via": "door", "from": name}
    spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **source)
