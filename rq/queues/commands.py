"""The verbs of the control socket: each parses its argument, calls one thing, answers.

A handler returns the reply, or a coroutine that does. What it fires is promised when
its reply leaves, after the group is durable.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import orjson

from rq import names, proc
from rq.errors import (
    BadInput,
    BadMessage,
    NoSuchMessage,
    Refused,
    WrongState,
)
from rq.layout import ATTACH
from rq.queues import handover, keyed, retention, views
from rq.queues.connection import Connection
from rq.queues.owner import Owner
from rq.queues.runner import Runner
from rq.spool import attach, check, leases
from rq.states import Event, Role, State, next_state


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler works with."""

    owner: Owner
    runner: Runner
    connection: Connection
    stop: Callable[[], None]
    look: Callable[[], None]  # at files: config, admin, door
    seal: Callable[[], Future[None] | None]


Handler = Callable[[Context, bytes], Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A verb: its handler, and when it may be asked."""

    handler: Handler
    always: bool = False  # answered when DOWN, and while the disk does not take writes
    down: bool = False  # answered when DOWN
    creates: bool = False  # paced when folders lag


def _object(arg: bytes) -> dict[str, Any]:
    try:
        asked = orjson.loads(arg)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the argument is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise BadInput("the argument is not a JSON object")
    return asked


def _with_id(arg: bytes) -> tuple[dict[str, Any], str]:
    asked = _object(arg)
    if "msg_id" not in asked:
        raise BadInput("lacking 'msg_id' field")
    return asked, names.msg_id(asked["msg_id"])


# ---- making messages


def create_message(ctx: Context, arg: bytes) -> Any:
    """Accept a message."""
    return _create(ctx.owner, _object(arg))


def _create(owner: Owner, asked: dict[str, Any]) -> Any:
    key = keyed.key_in(asked)
    if key is not None:
        return ["ok", owner.full_id(keyed.create(owner, asked, key))]
    owner.check_open()
    message = owner.make(asked)
    owner.accept(message)
    return ["ok", owner.full_id(message.msg_id)]


def prep_message(ctx: Context, arg: bytes) -> Any:
    """Begin a message: attachments follow, then commit."""
    asked = _object(arg)
    key = keyed.key_in(asked)
    if key is not None:
        msg_id, state = keyed.prepare(ctx.owner, asked, key)
        return ["ok", ctx.owner.full_id(msg_id), state]
    ctx.owner.check_open()
    message = ctx.owner.make(asked)
    ctx.owner.spool.prepare(message)
    return ["ok", ctx.owner.full_id(message.msg_id)]


def single_que(ctx: Context, arg: bytes) -> Any:
    """Accept a message unless one waits; answer the id of the one that does."""
    asked = _object(arg)
    newest = views.newest_waiting(ctx.owner)
    if newest is not None:
        return ["ok", ctx.owner.full_id(newest)]
    return _create(ctx.owner, asked)


def attach_message(ctx: Context, arg: bytes) -> Any:
    """Copy a file into a message in prep: a passed descriptor, or a path that is opened
    with the asker's rights."""
    asked, msg_id = _with_id(arg)
    path = asked.get("pathname")
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise BadInput("pathname is not an absolute path")
    name = names.attachment(asked.get("name") or os.path.basename(path))
    if ctx.owner.spool.find(msg_id) not in (State.PREP, None):
        raise WrongState(keyed.ALREADY)
    ctx.owner.check_open()
    passed = ctx.connection.take_fd()
    source = passed if passed is not None else _opened(path, ctx.connection.peer)
    try:
        upload = attach.begin(ctx.owner.spool, msg_id, name)
        ctx.owner.spool.entries[msg_id].busy = True
    except BaseException:
        os.close(source)
        raise
    return _copy(ctx.owner, source, upload, asked.get("sha256"))


def _opened(path: str, peer: proc.Peer) -> int:
    try:
        return proc.open_as(path, peer)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None


async def _copy(
    owner: Owner, source: int, upload: attach.Upload, sha256: object
) -> Any:
    spool = owner.spool
    try:
        taken = await owner.loop.run_in_executor(
            owner.threads, attach.copy, spool.dir_fd, source, upload
        )
    except OSError as error:
        raise Refused(f"{upload.name}: {error.strerror or error}") from None
    finally:
        os.close(source)
        spool.entries[upload.msg_id].busy = False
    if sha256 not in (None, taken.sha256):
        attach.drop(spool, upload)
        raise BadInput(f"attachment {upload.name} is not whole; attach it again")
    attach.end(spool, upload, taken)
    return ["ok", f"{taken.md5}-Attached successfully"]


def delete_attach_message(ctx: Context, arg: bytes) -> Any:
    """Remove an attachment of a message in prep."""
    asked, msg_id = _with_id(arg)
    if ctx.owner.spool.state_of(msg_id) is not State.PREP:
        raise WrongState("msg not in prep")
    attach.remove(
        ctx.owner.spool, msg_id, names.attachment(asked.get("attachment_name"))
    )
    return ["ok", "Attachment deleted successfully"]


def commit_message(ctx: Context, arg: bytes) -> Any:
    """Accept a prepared message."""
    asked, msg_id = _with_id(arg)
    owner = ctx.owner
    state = owner.spool.find(msg_id)
    if state is not State.PREP:
        if state is None and keyed.key_in(asked) not in owner.spool.keys:
            raise NoSuchMessage("cannot find message")
        return ["ok", keyed.ALREADY]
    owner.check_open()
    if owner.spool.entries[msg_id].busy:
        raise WrongState("msg is being worked on: an attach has not ended; ask again")
    message = owner.spool.read(msg_id)
    place = owner.queue.message(State.PREP, msg_id) / ATTACH
    ancestors = (
        names.is_ancestors(msg_id) and not message.attachments and place.is_dir()
    )
    if not ancestors:
        attach.sweep(owner.spool, message)
    if not message.attachments and not ancestors:
        return ["ok", keyed.accept(owner, message)]
    owner.spool.entries[msg_id].busy = True
    return _commit_with_files(owner, msg_id)


async def _commit_with_files(owner: Owner, msg_id: str) -> Any:
    spool = owner.spool
    message = spool.read(msg_id)
    deep = spool.entries[msg_id].since < owner.began_at
    try:
        if not message.attachments:
            place = spool.queue.message(State.PREP, msg_id)
            found = await owner.loop.run_in_executor(
                owner.threads, attach.unnamed, place
            )
            message, deep = message.with_(attachments=found), False
        await owner.loop.run_in_executor(
            owner.threads, attach.verify, spool.dir_fd, message, deep
        )
    except OSError as error:
        raise Refused(f"attachments are not on disk: {error.strerror}") from None
    finally:
        spool.entries[msg_id].busy = False
    return ["ok", keyed.accept(owner, message)]


def clone_message(ctx: Context, arg: bytes) -> Any:
    """Accept a copy of a message that has ended."""
    _, msg_id = _with_id(arg)
    return _cloned(ctx.owner, msg_id)


async def _cloned(owner: Owner, msg_id: str) -> Any:
    return ["ok", await handover.clone(owner, msg_id)]


def take_copy(ctx: Context, arg: bytes) -> Any:
    """Accept a copy of a running message of another queue (its `dup`)."""
    return _taken(ctx.owner, _object(arg), ctx.connection.peer)


async def _taken(owner: Owner, asked: Mapping[str, Any], peer: proc.Peer) -> Any:
    return ["ok", await handover.take_copy_from(owner, asked, peer)]


# ---- changing messages


def delete_message(ctx: Context, arg: bytes) -> Any:
    """Remove a message that does not run."""
    _, msg_id = _with_id(arg)
    if ctx.owner.spool.state_of(msg_id) is State.RUN:
        raise WrongState("msg is running: destroy it first")
    ctx.owner.discard(msg_id)
    return ["ok", "msg deleted"]


def destroy_message(ctx: Context, arg: bytes) -> Any:
    """End a running message; it goes to err."""
    asked, msg_id = _with_id(arg)
    if not ctx.runner.cancel(msg_id, _who(ctx, asked)):
        raise NoSuchMessage("msg not found")
    return ["ok", "msg destroyed"]


def cancel_message(ctx: Context, arg: bytes) -> Any:
    """End a running message, as err `cancelled by WHO`."""
    asked, msg_id = _with_id(arg)
    if not ctx.runner.cancel(msg_id, _who(ctx, asked)):
        state = ctx.owner.spool.state_of(msg_id)
        raise WrongState(f"msg is not running, it is in {state}")
    return ["ok", "msg is being cancelled"]


def _who(ctx: Context, asked: Mapping[str, Any]) -> str:
    who = asked.get("who")
    if isinstance(who, str) and who.strip().isprintable() and who.strip():
        return who.strip()[:100]
    return f"user {ctx.connection.peer.uid}"


def retry_message(ctx: Context, arg: bytes) -> Any:
    """Send a message in err round again, with the same id and its count at 0."""
    asked, msg_id = _with_id(arg)
    who = _who(ctx, asked)
    next_state(ctx.owner.spool.state_of(msg_id), Event.REQUEUE, Role.CREATOR)
    return _retried(ctx.owner, msg_id, who)


async def _retried(owner: Owner, msg_id: str, who: str) -> Any:
    # Whoever hid from the sweep of the last attempt must not meet the next one.
    left = await owner.loop.run_in_executor(
        None,
        leases.end_processes,
        owner.opened.lease_prefix,
        [],
        owner.main.grace,
        msg_id,
    )
    for one in left:
        os.close(one.pidfd)
    if left:
        raise Refused("a process of its last attempt does not end")
    message = owner.spool.read(msg_id)
    began = int(owner.spool.status(msg_id).get("attempt", 0))
    again = message.with_(
        count=0, attempt=max(message.attempt, began), due=owner.spool.clock()
    )
    facts = {
        "cause": "operator",
        "outcome": "requeue",
        "text": f"by {who}",
    }
    owner.spool.fire(msg_id, Event.REQUEUE, Role.CREATOR, message=again, facts=facts)
    owner.waits(msg_id, again)
    owner.wake()
    return ["ok", "msg sent round again"]


def run_message(ctx: Context, arg: bytes) -> Any:
    """Let a message in que run before all others."""
    _, msg_id = _with_id(arg)
    state = ctx.owner.spool.state_of(msg_id)
    if state is State.RUN:
        raise WrongState("msg already running")
    if state is not State.QUE:
        raise WrongState("msg not in runnable state")
    ctx.owner.run_now(msg_id)
    return ["ok", "msg sent to front of run queue"]


def ack_errs(ctx: Context, arg: bytes) -> Any:
    """Acknowledge one error, or all of them; answer how many."""
    asked = _object(arg) if arg.strip().startswith(b"{") else {}
    spool = ctx.owner.spool
    if "msg_id" in asked:
        ids = [names.msg_id(asked["msg_id"])]
    else:
        ids = views.in_err(ctx.owner)
    for msg_id in ids:
        spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
        if spool.journal.full:
            spool.commit()
    return ["ok", len(ids)]


# ---- looking


def get_message(ctx: Context, arg: bytes) -> Any:
    """Answer all that is known of a message."""
    _, msg_id = _with_id(arg)
    try:
        return ["ok", views.message(ctx.owner, msg_id)]
    except BadMessage as error:
        reason = str(error).removeprefix("msg couldn't be read: ")
        raise BadMessage(f"msg couldn't be read: {reason}") from None


def get_message_state(ctx: Context, arg: bytes) -> Any:
    _, msg_id = _with_id(arg)
    return ["ok", views.public_state(ctx.owner.spool.state_of(msg_id))]


def get_message_status(ctx: Context, arg: bytes) -> Any:
    _, msg_id = _with_id(arg)
    return ["ok", views.status(ctx.owner, msg_id)]


def num_messages(ctx: Context, arg: bytes) -> Any:
    return views.counts(ctx.owner)


def messages(ctx: Context, arg: bytes) -> Any:
    """Answer the ids in a state, as the ancestor did."""
    return views.messages(ctx.owner, _object(arg))


def listed(ctx: Context, arg: bytes) -> Any:
    """Answer messages of a state with their main fields."""
    return ["ok", views.listed(ctx.owner, _object(arg))]


# ---- the queue itself


def ping(ctx: Context, arg: bytes) -> Any:
    return ["pong"]


def uptime(ctx: Context, arg: bytes) -> Any:
    return [int(time.monotonic() - ctx.owner.began)]


def config(ctx: Context, arg: bytes) -> Any:
    return ["ok", ctx.owner.config.to_json()]


def status(ctx: Context, arg: bytes) -> Any:
    ctx.owner.forget_admin()
    return [ctx.owner.status]


def detail(ctx: Context, arg: bytes) -> Any:
    """Answer what an operator wants to know of the queue."""
    ctx.owner.forget_admin()
    return ["ok", views.detail(ctx.owner)]


def shutdown(ctx: Context, arg: bytes) -> Any:
    ctx.stop()
    return ["ok"]


def mind(ctx: Context, arg: bytes) -> Any:
    """Take the asker for our parent: when it hangs up, the queue stops."""
    proc.check_own(ctx.connection.peer)
    ctx.connection.minded = True
    return ["ok", os.getpid()]


def wake(ctx: Context, arg: bytes) -> Any:
    """Look at config, admin files and the door at once."""
    ctx.look()
    return ["ok"]


def seal(ctx: Context, arg: bytes) -> Any:
    """Make history of all events so far; answer up to which."""
    return _sealed(ctx)


async def _sealed(ctx: Context) -> Any:
    sealing = ctx.seal()
    seq = ctx.owner.spool.journal.position.seq
    if sealing is not None:
        await asyncio.wrap_future(sealing)
    return ["ok", {"sealed": sealing is not None, "seq": seq}]


def expire(ctx: Context, arg: bytes) -> Any:
    """Remove messages that have ended and outlived limits."""
    return _expired(ctx.owner, _object(arg) if arg.strip() else {})


async def _expired(owner: Owner, wanted: Mapping[str, Any]) -> Any:
    return ["ok", await retention.asked(owner, wanted)]


def checked(ctx: Context, arg: bytes) -> Any:
    """Compare journal, folders and counters."""
    found = check.check_live(ctx.owner.spool)
    return ["ok", {"problems": [one.to_json() for one in found]}]


COMMANDS: dict[str, Command] = {
    "ping": Command(ping, always=True),
    "uptime": Command(uptime, always=True),
    "config": Command(config, always=True),
    "status": Command(status, always=True),
    "detail": Command(detail, always=True),
    "shutdown": Command(shutdown, always=True),
    "mind": Command(mind, always=True),
    "wake": Command(wake, always=True),
    "create_message": Command(create_message, creates=True),
    "prep_message": Command(prep_message, creates=True),
    "single_que": Command(single_que, creates=True),
    "attach_message": Command(attach_message, creates=True),
    "delete_attach_message": Command(delete_attach_message),
    "commit_message": Command(commit_message, creates=True),
    "take_copy": Command(take_copy, creates=True),
    "clone_message": Command(clone_message, creates=True),
    "get_message": Command(get_message),
    "get_message_state": Command(get_message_state),
    "get_message_status": Command(get_message_status),
    "delete_message": Command(delete_message),
    "destroy_message": Command(destroy_message),
    "cancel_message": Command(cancel_message),
    "retry_message": Command(retry_message),
    "run_message": Command(run_message),
    "num_messages": Command(num_messages),
    "ack_errs": Command(ack_errs),
    "messages": Command(messages),
    "list": Command(listed),
    "seal": Command(seal, down=True),
    "expire": Command(expire),
    "check": Command(checked, down=True),
}
