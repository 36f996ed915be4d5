"""Copies of messages: clones here, dups and forwards to other queues."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from pathlib import Path

from rq import names
from rq.config.admin import Admin, admin_status
from rq.errors import (
    BadInput,
    Closed,
    Down,
    NoSuchMessage,
    NoSuchQueue,
    NotPermitted,
    NotPlain,
    NotWhole,
    Refused,
    RQError,
    Torn,
    Unreachable,
    WrongState,
    of_call,
)
from rq.layout import Root, folder
from rq.message import fieldnames, guarded
from rq.message.causes import Cause
from rq.message.fields import Attachment, JsonObject
from rq.message.guarded import Sender
from rq.message.message import MESSAGE_LIMIT, Message, to_keep
from rq.message.table import NOT_CLONED, NOT_DUPED
from rq.queues.attempts.outcome import Outcome
from rq.queues.owner.owner import Owner
from rq.queues.owner.settings import Settings
from rq.queues.schedule.waiting import turn
from rq.rpc import client, loop_client
from rq.scripts import pipe
from rq.spool import ancestor_files, attach, folders
from rq.spool.record import More, OutEntry
from rq.words.nesting import Json
from rq.words.states import FINAL, Event, Role, State

RELAY = "relay"
_MORE = 1024  # bytes that the receiver adds to a message


# ---- a copy with its attachments, into this queue


async def take_copy(
    owner: Owner,
    request: Json,
    source: Path,
    message: Message,
    key: str | None = None,
) -> str:
    """Accept a copy of `message`, with the attachments of its folder `source`; return its
    full id once it is durable. Of those with one `key` the first is taken."""
    copy = await _unaccepted(owner, request, source, message)
    accepted_id = accept_once(owner, copy, key)
    await owner.committed()
    return owner.full_id(accepted_id)


async def _unaccepted(
    owner: Owner, request: Json, source: Path, original: Message
) -> Message:
    """Return a new message that is not accepted yet, sent by who sent the original. With
    attachments it is in prep, and `accept_once` discards it there if it does not take
    it."""
    owner.admission.check_open()
    attachments = original.attachments
    if not attachments and names.is_ancestors(source.name):
        attachments = await _unnamed(owner, source)
    message = owner.make(request, is_new=False, by=original.by)
    message = message.with_(attachments=dict(attachments))
    if attachments:
        await _prepare_copy(owner, message, source)
    return message


def accept_once(
    owner: Owner,
    copy: Message,
    key: str | None,
    check: Callable[[], None] = lambda: None,
) -> str:
    """Accept a copy, or join it to an equal message; return the id of the one that
    stands. Of those with one `key` the first is taken.

    Much may have happened while its files were copied: whether the queue is open is
    looked at again here, and `check` raises why the asker wants it no more. One that is
    not taken is discarded.
    """
    accepted_id = None if key is None else owner.spool.message_of(key)
    if accepted_id is not None:
        _discard(owner, copy.msg_id)
        return accepted_id
    more: More = {} if key is None else {"key": key}
    try:
        owner.admission.check_open()
        check()
        return owner.accept(copy, **more)
    except RQError:
        _discard(owner, copy.msg_id)
        raise


def _discard(owner: Owner, copy: str) -> None:
    if owner.spool.find(copy) is State.PREP:
        owner.spool.fire(copy, Event.DISCARD, Role.CREATOR)


async def _unnamed(owner: Owner, source: Path) -> Mapping[str, Attachment]:
    """Return what the ancestor attached to the message in `source`; a failure when
    that cannot travel."""
    try:
        run = owner.loop.run_in_executor
        return await run(owner.pools.files, ancestor_files.digests, source)
    except (OSError, BadInput) as error:
        raise _not_copied(error) from None


async def _prepare_copy(owner: Owner, message: Message, source: Path) -> None:
    spool = owner.spool
    copied = owner.config.clone == "copy"
    spool.prepare(message)
    run = owner.loop.run_in_executor
    try:
        with spool.working_on(message.msg_id):
            await run(owner.pools.files, attach.share, spool, source, message, copied)
            await run(owner.pools.files, attach.verify, spool.dir_fd, message, False)
    except (OSError, NotWhole) as error:
        spool.fire(message.msg_id, Event.DISCARD, Role.CREATOR)
        raise _not_copied(error) from None


def _not_copied(error: OSError | BadInput | NotWhole) -> RQError:
    text = f"its attachments cannot be copied: {error}"
    if isinstance(error, BadInput):
        return Refused(text)  # until a person gives a file another name
    if isinstance(error, NotWhole | NotPlain | FileNotFoundError):
        return Torn(text)
    return of_call(error)(text)


async def clone(owner: Owner, msg_id: str, by: str | None) -> str:
    """Accept a copy of a message that has ended, sent by who asks for it; return its full
    id."""
    copy = (await cloned(owner, msg_id, {})).with_(by=by)
    accepted_id = accept_once(owner, copy, None)
    await owner.committed()
    return owner.full_id(accepted_id)


async def cloned(owner: Owner, msg_id: str, changes: Mapping[str, Json]) -> Message:
    """Return a copy of a message that has ended, for `accept_once`, with `changes` of
    its fields (None: it is left out)."""
    state = owner.spool.state_of(msg_id)
    if state not in FINAL:
        raise WrongState(f"cannot clone message in {state} state")
    owner.spool.settle(msg_id)
    message = owner.spool.read(msg_id)
    request = _copied(message, NOT_CLONED)
    request.update(count=0, cloned_from=msg_id, due=_due_again(message, owner))
    request.update(changes)
    request = {name: value for name, value in request.items() if value is not None}
    source = owner.queue.path / folder(state, msg_id)
    return await _unaccepted(owner, request, source, message)


def _due_again(message: Message, owner: Owner) -> float:
    """Return when a copy of a message that has ended may run: when its sender wanted that.
    A moment that RQ has set is over, whatever the clock shows since it was put back."""
    now = owner.spool.clock()
    is_own = message.attempt > 1 or message.count > 0
    since = names.created(message.msg_id)
    return min(message.due, now) if is_own else turn(message.due, since, False, now)


def _copied(message: Message, without: Container[str]) -> dict[str, Json]:
    return {k: v for k, v in message.to_json().items() if k not in without}


def _tell_result(copy: dict[str, Json], result: str | None) -> None:
    """Give a copy the result of its parent, unless it would be too large with it."""
    if result:
        whole = {**copy, "parent_result": result}
        if len(to_keep(whole)) <= MESSAGE_LIMIT - _MORE:
            copy.update(whole)


# ---- dup: a copy into any queue of this root


async def dup(
    owner: Owner, message: Message, request: pipe.Dup, result: str | None = None
) -> str:
    """Copy a running message to another queue; return the full id of the copy, which
    knows the `result` that was said so far.

    The texts of its errors are what the script reads.
    """
    try:
        check_sender(owner.settings, request.dest)
        name = _existing(owner.root, request.dest)
    except (BadInput, NotPermitted, Refused) as error:
        raise Refused(f"dup failed - {error}") from None
    copy = _copied(message, NOT_DUPED)
    copy["dest"] = request.dest
    copy["due"] = owner.spool.clock() + request.delay
    copy["count"] = 0
    _tell_result(copy, result)
    try:
        return await _send_copy(owner, name, copy, message)
    except (Unreachable, NoSuchQueue):
        raise NoSuchQueue(f"couldn't connect to queue - {name}") from None
    except RQError as error:
        raise Refused(f"dup failed - {error}") from None


def check_sender(settings: Settings, dest: str) -> None:
    """NotPermitted when the scripts of a queue may not send there: what they copy are the
    words of the producer of their message. On other hosts, which may know no guard, a
    script may that has RQ's own rights."""
    queue = guarded.named_in(dest)
    if queue and (settings.queue.user or not names.is_remote(dest)):
        guarded.check(queue, Sender.SCRIPT)


def target(root: Root, dest: str) -> str:
    """Return the queue of this root that takes what is sent to `dest`; NoSuchQueue, or
    Down or Closed when it is not UP."""
    name = _existing(root, dest)
    admin = admin_status(root, name)
    if admin is not Admin.UP:
        raise (Down if admin is Admin.DOWN else Closed)(f"status: {admin}")
    return name


def _existing(root: Root, dest: str) -> str:
    names.check_dest(dest)
    name = RELAY if names.is_remote(dest) else dest
    if not names.is_queue_name(name) or not root.queue(name).path.is_dir():
        raise NoSuchQueue(f"couldn't connect to queue - {name}")
    return name


async def _send_copy(
    owner: Owner, name: str, copy: JsonObject, message: Message
) -> str:
    target(owner.root, name)
    if name == owner.name:
        source = owner.queue.path / folder(State.RUN, message.msg_id)
        return await take_copy(owner, copy, source, message)
    request = {"message": copy, "queue": owner.name, "msg_id": message.msg_id}
    reply = await loop_client.ask(owner.root.queue(name).socket, "take_copy", request)
    return accepted(reply)


def accepted(reply: object) -> str:
    """Return the full id in a reply; the failure that it tells of else."""
    return str(client.demanded(reply))


async def take_copy_from(owner: Owner, request: JsonObject) -> str:
    """Accept a copy of a message of another queue of this root, attachments included."""
    key = request.get("_key")
    if (
        key is not None
        and (accepted_id := owner.spool.message_of(str(key))) is not None
    ):
        return owner.full_id(accepted_id)
    source_queue = owner.root.queue(names.queue_name(request.get("queue")))
    msg_id = names.msg_id(request.get("msg_id"))
    state = folders.find(source_queue, msg_id)
    if state is None:
        raise NoSuchMessage("msg not found")
    message = folders.read_message(source_queue, state, msg_id)
    source = source_queue.message(state, msg_id)
    return await take_copy(
        owner,
        request.get("message"),
        source,
        message,
        None if key is None else str(key),
    )


# ---- forward: done, and a copy goes on


def forwarded(
    settings: Settings, message: Message, dest: str, now: float, result: str | None
) -> OutEntry:
    """Return the entry of the outbox that hands a message on, attachments included, with
    the `result` that was said of it."""
    return moved(settings, message.with_(parent_result=result), dest, now)


def moved(settings: Settings, message: Message, dest: str, due: float) -> OutEntry:
    """As `forwarded`, of a message that is to run there at `due`."""
    full_id = settings.main.full_id(settings.name, message.msg_id)
    origin = message.orig_msg_id or full_id
    first = message.with_(orig_msg_id=origin)
    return owed_copy(first, dest, due, message.parent_result)


def owed_copy(
    message: Message, dest: str, due: float, result: str | None = None
) -> OutEntry:
    """Return the entry of the outbox that copies a message to a queue, attachments
    included, to run there at `due`; it knows the `result` of its parent."""
    copy = _copied(message, NOT_DUPED)
    copy.update(dest=dest, due=due, count=0, **{fieldnames.BY: message.by or ""})
    _tell_result(copy, result)
    out: OutEntry = {"dest": RELAY if names.is_remote(dest) else dest, "message": copy}
    files = bool(message.attachments) or names.is_ancestors(message.msg_id)
    return {**out, "files": True} if files else out


def not_forwarded(reason: str) -> Outcome:
    return Outcome(Event.FAIL, Cause.REFUSED, f"forward failed - {reason}")
