"""The door `new/`: any program may rename a folder into it to send a message.

The message is accepted when its folder has left new/. A malformed one goes to err with
the reason; one that cannot be moved stays, and is shown. The folder of another user is
copied, for that user could still change what it has open.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from rq import names
from rq.errors import BadInput, Busy, NotPermitted, NotUnique
from rq.files import durable
from rq.layout import ATTACH, folder
from rq.logs import fields
from rq.message.causes import Cause
from rq.message.message import Message, from_request
from rq.spool import deposits
from rq.spool.deposits import Arrival
from rq.spool.entry import Entry
from rq.spool.folders import Aside
from rq.spool.record import Facts, More
from rq.spool.store import Spool
from rq.words.nesting import Json
from rq.words.states import Event, Role, State

BATCH = 64  # folders that are looked at together
log = logging.getLogger(__name__)


def _anything(_by_us: bool) -> None:
    """Take deposits of every user."""


def _nobody(message: Message) -> None:
    """Return who stands for a message of a queue without unique messages."""


async def _any_others(_fields: dict[str, Json]) -> None:
    """Let messages name all others."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """What the door needs of its owner."""

    spool: Spool
    origin: str  # what the full id of a message starts with
    aside: Aside
    take: Callable[[Message], None]  # called with each message as it is accepted
    is_open: Callable[[], bool]  # asked before each: whether anything may come in
    # Asked in the step in which a message is accepted: who stands for it; NotUnique.
    stands_for: Callable[[Message], str | None] = _nobody
    # NotPermitted when the queue takes no deposits of other users: it is told whether one
    # is of our own user, or of root.
    check_sender: Callable[[bool], None] = _anything
    # Asked of one that names others which have to end first: BadMessage when it may not,
    # Busy when that is not known for now. Writes these names as a message keeps them.
    check_others: Callable[[dict[str, Json]], Awaitable[None]] = _any_others


@dataclass(slots=True)
class Look:
    """The result of one look at the door."""

    taken: int = 0  # deposits that will leave new/: messages, copies, refusals
    left: dict[str, str] = field(default_factory=dict)  # name: why it stays in new/
    empty: bool = False  # nothing waited in new/ when it was listed


async def adopt(keeper: Keeper, known_left: dict[str, str]) -> Look:
    """Take what lies in new/, up to a listing: fires its events, which the caller commits.

    What is there is read, hashed and synced aside; whether it still can come in is looked
    at again in the turn in which it does.
    """
    spool, look = keeper.spool, Look()
    at_door = {entry.at_new for entry in spool.unsettled.values() if entry.at_new}
    place = os.fspath(spool.queue.path / "new")
    waiting = await keeper.aside(deposits.waiting, place, at_door, known_left)
    look.empty = not waiting
    for at in range(0, len(waiting), BATCH):
        before = look.taken
        await _adopt_some(keeper, waiting[at : at + BATCH], look)
        if look.taken == before:  # who follows could not be taken the last time
            break
    for name in look.left.keys() - known_left.keys():
        log.error(
            "a folder in new/ cannot be accepted; it stays there: %s",
            fields(name=name, reason=look.left[name]),
        )
    return look


async def _adopt_some(keeper: Keeper, waiting: list[str], look: Look) -> None:
    """Take a batch of what lies in new/."""
    spool, aside = keeper.spool, keeper.aside
    usable = [await _named(keeper, name, look) for name in waiting]
    coming = [
        aside(deposits.look_at, spool.dir_fd, name)
        for name in usable
        if name is not None
    ]
    there = [await arrival for arrival in coming]
    unsynced = await _sync_door(keeper, there)
    for arrival in there:
        if not keeper.is_open():
            break
        try:
            look.taken += await _let_in(keeper, arrival, unsynced)
        except OSError as error:
            look.left[arrival.name] = error.strerror or str(error)
        except Busy as error:
            look.left[arrival.name] = str(error)
        except Exception as error:  # what comes after it must not wait for it
            log.exception("RQ failed over a folder in new/")
            look.left[arrival.name] = f"RQ failed over it: {error!r:.200}"


async def _named(keeper: Keeper, name: str, look: Look) -> str | None:
    """Return the name of a deposit; one that is no UTF-8 gets another, for it could
    stand in no line of the journal. None: it has to stay as it is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        fresh = keeper.spool.new_id()
        try:
            await keeper.aside(deposits.rename, keeper.spool.dir_fd, name, fresh)
        except OSError as error:
            look.left[name] = error.strerror or str(error)
            return None
        log.warning(
            "the name of a folder in new/ is not UTF-8; RQ has renamed it: %s",
            fields(name=name, now=fresh),
        )
        return fresh
    return name


async def _sync_door(keeper: Keeper, there: list[Arrival]) -> OSError | None:
    """Make the names of deposits durable, all at once; return why they are not."""
    if all(arrival.foreign or arrival.error for arrival in there):
        return None
    try:
        await keeper.aside(durable.sync_path, "new", keeper.spool.dir_fd)
    except OSError as error:
        return error
    return None


# ---- in the owner's turn


async def _let_in(keeper: Keeper, arrival: Arrival, unsynced: OSError | None) -> bool:
    """Accept a deposit or send it to err; OSError when it has to stay. Return whether it
    will leave new/."""
    spool, name = keeper.spool, arrival.name
    try:
        if arrival.error is not None:
            if not _is_there(spool, arrival):
                return False  # its depositor has taken it away
            raise arrival.error
        keeper.check_sender(arrival.trusted)
        if arrival.foreign:
            return await _let_copy_in(keeper, arrival)
        await _check_others(keeper, arrival)
        if not _is_there(spool, arrival):
            return False
        if unsynced is not None:
            raise unsynced
        _take(keeper, arrival)
    except (BadInput, NotPermitted) as error:
        _refuse(spool, name, str(error))
    return True


async def _check_others(keeper: Keeper, arrival: Arrival) -> None:
    """Look whether a deposit may name those that it is to wait for; OSError or Busy when
    it has to stay. One that has waited already names what may be gone by now."""
    fields = arrival.request
    if not isinstance(fields, dict):
        return
    if fields.get("after") and not fields.get("after_end"):
        await keeper.check_others(fields)
        _check_open(keeper)


def _check_open(keeper: Keeper) -> None:
    """OSError when the queue has closed while something was waited for."""
    if not keeper.is_open():
        raise OSError(None, "the queue accepts nothing any more")


def _is_there(spool: Spool, arrival: Arrival) -> bool:
    """Whether a deposit lies where it was found, and no other in its place."""
    path = f"new/{arrival.name}"
    try:
        info = os.stat(path, dir_fd=spool.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return arrival.error is not None or info.st_ino == arrival.inode


def _take(keeper: Keeper, arrival: Arrival) -> None:
    """Take the folder itself: our own user has made it."""
    spool = keeper.spool
    message = _message(keeper, arrival).with_(attachments=arrival.attachments)
    message.encode_new()  # BadMessage before anything remembers it
    facts = _ended(keeper, message)
    with _at_door(spool, message.msg_id, arrival.name, message.due):
        source: More = {"via": "door", "from": arrival.name}
        spool.submit(message, **_accepted(facts, source))
    _go_on(keeper, message, facts)


def _ended(keeper: Keeper, message: Message) -> Facts | None:
    """Return how a message ends at once because an equal one stands; None: it waits as
    any other. Its depositor hears no answer, so its folder tells."""
    try:
        stands = keeper.stands_for(message)
    except NotUnique as error:
        return {"cause": Cause.NOT_UNIQUE, "outcome": "err", "text": str(error)}
    if stands is None:
        return None
    return {"cause": Cause.JOINED, "outcome": "done", "text": f"message {stands}"}


def _accepted(facts: Facts | None, source: More) -> More:
    """Return the fields of a commit. One in whose way an equal message stands begins no
    window: it would keep others out for which it does not stand."""
    return source if facts is None else {**source, "unique": ""}


def _go_on(keeper: Keeper, message: Message, facts: Facts | None) -> None:
    """Put an accepted message into the schedule, or end it in the group that accepts
    it."""
    if facts is None:
        keeper.take(message)
        return
    event = Event.FAIL if facts["outcome"] == "err" else Event.FINISH
    keeper.spool.fire(message.msg_id, event, Role.QUEUE, facts=facts)


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


async def _let_copy_in(keeper: Keeper, arrival: Arrival) -> bool:
    """Take a copy: another user may keep a descriptor of what it has deposited, or a
    second name, and change it at any time. The deposit goes once its line is on disk."""
    spool = keeper.spool
    if (msg_id := spool.message_of(arrival.key)) is not None:
        _let_go(spool, arrival.name, msg_id)
        return False
    await _check_others(keeper, arrival)
    message = _message(keeper, arrival)
    attach = f"{folder(State.PREP, message.msg_id)}/{ATTACH}"
    spool.prepare(message)
    try:
        with spool.working_on(message.msg_id):
            copied = await keeper.aside(
                deposits.copy, spool.dir_fd, arrival, message, attach
            )
        message = message.with_(attachments=copied)
        message.encode_new()
        _check_open(keeper)
        facts = _ended(keeper, message)
    except Exception:
        spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        raise
    source: More = {"via": "door", "key": arrival.key}
    spool.submit(message, **_accepted(facts, source))
    _go_on(keeper, message, facts)
    return True


def _let_go(spool: Spool, name: str, msg_id: str) -> None:
    """Remove a deposit that was copied, once the line of its message is on disk."""
    entry = spool.entries.get(msg_id)
    if entry is None or entry.seq <= spool.journal.position.seq:
        spool.gone.doom(f"new/{name}", f"door.{msg_id}")


def _message(keeper: Keeper, arrival: Arrival) -> Message:
    spool, name = keeper.spool, arrival.name
    keeps = names.is_msg_id(name) and spool.free_id(name)
    msg_id = name if keeps else spool.new_id()
    full_id = f"{keeper.origin}{msg_id}"
    message = from_request(arrival.request, msg_id, spool.clock(), full_id)
    message = message.with_(by=arrival.by)
    if msg_id != name and names.is_msg_id(name):
        message = message.with_(orig_msg_id=name)
    return message


def _refuse(spool: Spool, name: str, reason: str) -> None:
    """Send a malformed folder to err, with the reason."""
    msg_id = spool.new_id()
    log.error(
        "a folder from new/ is not a whole message; RQ moves it to err: %s",
        fields(name=name, msg_id=msg_id, reason=reason),
    )
    facts: Facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    source: More = {"via": "door", "from": name}
    with _at_door(spool, msg_id, name, 0.0):
        spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **source)
