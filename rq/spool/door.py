"""The other door, `new/`: what any program renames in is adopted.

The depositor's promise begins when its folder has left new/. What is malformed goes to
err with the reason; what cannot even be moved is left, and shown. What belongs to another
user is copied: it could change what it keeps open.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
from collections.abc import Awaitable, Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from rq import durable, names
from rq.causes import Cause
from rq.errors import BadInput
from rq.layout import ATTACH, MSG, folder
from rq.logs import fields
from rq.message import Attachment, Message, from_request
from rq.nesting import from_json
from rq.spool import attach as attaching
from rq.spool import deposits
from rq.spool.entry import Entry
from rq.spool.record import Facts, More
from rq.spool.store import Spool
from rq.states import Event, Role, State

BATCH = 64  # folders that are looked at together
LISTED = 2048  # names that one listing gives: each costs as much as there are
log = logging.getLogger(__name__)

# Calls something in a thread; what it returns or raises comes to whoever awaits it.
Aside = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Keeper:
    """On whose behalf the door is looked at."""

    spool: Spool
    origin: str  # what the full id of a message starts with
    aside: Aside
    take: Callable[[Message], None]  # called with each message as it is accepted
    is_open: Callable[[], bool]  # asked before each: whether anything may come in


@dataclass(slots=True)
class Look:
    """What one look at the door has done."""

    taken: int = 0  # deposits that will leave new/: messages, copies, refusals
    left: dict[str, str] = field(default_factory=dict)  # name: why it stays in new/


@dataclass(frozen=True, slots=True)
class _Found:
    """A deposit as a thread has found it: all of it on disk, unless it is foreign."""

    name: str
    inode: int = 0
    foreign: bool = False
    key: str = ""
    asked: Any = None
    attachments: dict[str, Attachment] = field(default_factory=dict)
    error: Exception | None = None


async def adopt(keeper: Keeper, known_left: dict[str, str]) -> Look:
    """Take what lies in new/, up to a listing: fires its events, which the caller commits.

    What is there is read, hashed and synced aside; whether it still can come in is looked
    at again in the turn in which it does.
    """
    spool, look = keeper.spool, Look()
    taken = {one.at_new for one in spool.unsettled.values() if one.at_new}
    place = os.fspath(spool.queue.path / "new")
    waiting = await keeper.aside(_waiting, place, taken, known_left)
    for at in range(0, len(waiting), BATCH):
        before = look.taken
        await _adopt_some(keeper, waiting[at : at + BATCH], look)
        if look.taken == before:  # who follows could not be taken the last time
            break
    for name in look.left.keys() - known_left.keys():
        log.error(
            "a folder at the door cannot be taken; it stays in new/: %s",
            fields(name=name, reason=look.left[name]),
        )
    return look


async def _adopt_some(keeper: Keeper, waiting: list[str], look: Look) -> None:
    """Take a batch of what lies in new/."""
    spool, aside = keeper.spool, keeper.aside
    known = [await _named(keeper, name, look) for name in waiting]
    coming = [aside(_found, spool.dir_fd, name) for name in known if name is not None]
    found = [await one for one in coming]
    unsynced = await _sync_door(keeper, found)
    for one in found:
        if not keeper.is_open():
            break
        try:
            look.taken += await _let_in(keeper, one, unsynced)
        except OSError as error:
            look.left[one.name] = error.strerror or str(error)
        except Exception as error:  # what comes after it must not wait for it
            log.exception("a folder at the door could not be looked at")
            look.left[one.name] = f"RQ failed over it: {error!r:.200}"


async def _named(keeper: Keeper, name: str, look: Look) -> str | None:
    """Return the name of a deposit; one that is no UTF-8 gets another, for it could
    stand in no line of the journal. None: it has to stay as it is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        fresh = keeper.spool.new_id()
        try:
            await keeper.aside(_rename, keeper.spool.dir_fd, name, fresh)
        except OSError as error:
            look.left[name] = error.strerror or str(error)
            return None
        log.warning(
            "a name at the door is no UTF-8; RQ has renamed the folder: %s",
            fields(name=name, now=fresh),
        )
        return fresh
    return name


async def _sync_door(keeper: Keeper, found: list[_Found]) -> OSError | None:
    """Make the names of deposits durable, all at once; return why they are not."""
    if all(one.foreign or one.error for one in found):
        return None
    try:
        await keeper.aside(durable.sync_path, "new", keeper.spool.dir_fd)
    except OSError as error:
        return error
    return None


# ---- aside, in a thread


def _waiting(
    place: str, taken: Container[str], known_left: Container[str]
) -> list[str]:
    """Return the first names at the door. What could not be taken the last time must
    not stand in the way of the others."""
    names = (name for name in os.listdir(place) if name not in taken)
    return heapq.nsmallest(LISTED, names, key=lambda one: (one in known_left, one))


def _rename(dir_fd: int, name: str, fresh: str) -> None:
    durable.move(f"new/{name}", f"new/{fresh}", dir_fd)
    durable.sync_path("new", dir_fd)


def _found(dir_fd: int, name: str) -> _Found:
    """Look at a deposit; one of our own user's is durable then, but for its name."""
    try:
        with deposits.opened(dir_fd, f"new/{name}") as deposit:
            asked = from_json(deposit.msg(), "msg")
            attachments = {} if deposit.foreign else deposit.digests()
            if not deposit.foreign:
                _sync(dir_fd, f"new/{name}", attachments)
            inode = os.fstat(deposit.fd).st_ino
            about = inode, deposit.foreign, deposit.key
            return _Found(name, *about, asked, attachments)
    except Exception as error:  # noqa: BLE001 - raised again when its turn comes
        return _Found(name, error=error)


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


def _copied(
    dir_fd: int, found: _Found, message: Message, attach: str
) -> dict[str, Attachment]:
    """Copy another user's attachments, durably; BadInput if they are not those any more
    that were looked at."""
    with deposits.opened(dir_fd, f"new/{found.name}") as deposit:
        if deposit.key != found.key:
            raise OSError(None, "it changes while it is looked at")
        if deposit.files:
            durable.make_dirs(attach, dir_fd)
        copied = deposit.copied(dir_fd, attach)
    attaching.verify(dir_fd, message.with_(attachments=copied), deep=False)
    return copied


# ---- in the owner's turn


async def _let_in(keeper: Keeper, found: _Found, unsynced: OSError | None) -> bool:
    """Accept a deposit or send it to err; OSError when it has to stay. Return whether it
    will leave new/."""
    spool, name = keeper.spool, found.name
    try:
        if found.error is not None:
            if not _is_there(spool, found):
                return False  # its depositor has taken it away
            raise found.error
        if found.foreign:
            return await _let_copy_in(keeper, found)
        if not _is_there(spool, found):
            return False
        if unsynced is not None:
            raise unsynced
        _take(keeper, found)
    except BadInput as error:
        _refuse(spool, name, str(error))
    return True


def _is_there(spool: Spool, found: _Found) -> bool:
    """Whether a deposit lies where it was found, and no other in its place."""
    path = f"new/{found.name}"
    try:
        info = os.stat(path, dir_fd=spool.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return found.error is not None or info.st_ino == found.inode


def _take(keeper: Keeper, found: _Found) -> None:
    """Take the folder itself: whoever made it is our user."""
    spool = keeper.spool
    message = _message(keeper, found).with_(attachments=found.attachments)
    message.encode_new()  # BadMessage before anything remembers it
    with _at_door(spool, message.msg_id, found.name, message.due):
        source: More = {"via": "door", "from": found.name}
        spool.submit(message, **source)
    keeper.take(message)


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


async def _let_copy_in(keeper: Keeper, found: _Found) -> bool:
    """Take a copy: another user may keep a descriptor of what it has deposited, or a
    second name, and change it at any time. The deposit goes once its line is on disk."""
    spool = keeper.spool
    if (known := spool.keys.get(found.key)) is not None:
        _let_go(spool, found.name, known[0])
        return False
    message = _message(keeper, found)
    attach = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    spool.prepare(message)
    try:
        with spool.working_on(message.msg_id):
            copied = await keeper.aside(_copied, spool.dir_fd, found, message, attach)
        message = message.with_(attachments=copied)
        message.encode_new()
        if not keeper.is_open():
            raise OSError(None, "nothing can be accepted any more")
    except Exception:
        spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        raise
    spool.submit(message, via="door", key=found.key)
    keeper.take(message)
    return True


def _let_go(spool: Spool, name: str, msg_id: str) -> None:
    """Remove a deposit that was copied, once the line of its message is on disk."""
    entry = spool.entries.get(msg_id)
    if entry is None or entry.seq <= spool.journal.position.seq:
        spool.gone.doom(f"new/{name}", f"door.{msg_id}")


def _message(keeper: Keeper, found: _Found) -> Message:
    spool, name = keeper.spool, found.name
    keeps = names.is_msg_id(name) and spool.free_id(name)
    msg_id = name if keeps else spool.new_id()
    full_id = f"{keeper.origin}{msg_id}"
    message = from_request(found.asked, msg_id, spool.clock(), full_id)
    if msg_id != name and names.is_msg_id(name):
        message = message.with_(orig_msg_id=name)
    return message


def _refuse(spool: Spool, name: str, reason: str) -> None:
    """Let a malformed folder go to err, with the reason."""
    msg_id = spool.new_id()
    log.error(
        "what came through the door cannot be used; RQ moves it to err: %s",
        fields(name=name, msg_id=msg_id, reason=reason),
    )
    facts: Facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    source: More = {"via": "door", "from": name}
    with _at_door(spool, msg_id, name, 0.0):
        spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **source)
