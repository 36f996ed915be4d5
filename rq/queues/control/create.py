"""The commands that make messages: create one or many; prepare, attach and commit;
copies."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from rq import names
from rq.errors import (
    AlreadyCommitted,
    BadInput,
    BadMessage,
    Busy,
    NoSuchMessage,
    NotWhole,
    RQError,
    WrongState,
    is_busy,
    of_call,
)
from rq.layout import ATTACH
from rq.message.fields import Attachment, JsonObject
from rq.message.message import Message
from rq.proc import heap, peers
from rq.proc.slices import in_slices
from rq.queues.control import idempotency, message_list, predecessors
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Reply,
    Request,
    msg_id_in,
)
from rq.queues.control.idempotency import Key, OkOrJoined, Preparer
from rq.queues.delivery import copies
from rq.queues.owner.owner import Owner
from rq.rpc import wire
from rq.spool import ancestor_files, attach
from rq.words.nesting import Json
from rq.words.states import State

DELETED = "Attachment deleted successfully"
MOST_AT_ONCE = 5000  # messages of a request
_MANY = 1000  # predecessors of a message: their texts have filled a part of the memory

# `["ok", ID]`, `["ok", ID, "joined"]`, or as a request for one message would have failed.
_Row = idempotency.OkOrJoined | list[str]


def create_message(
    ctx: Context, request: Request
) -> OkOrJoined | Awaitable[OkOrJoined]:
    """Accept a message, or join it to an equal one."""
    if _names_others(ctx, request):
        return _create_after(ctx, request)
    return _create(ctx, request)


def _names_others(ctx: Context, fields: Json) -> bool:
    """Whether a new message names others, which have to be asked for."""
    if not isinstance(fields, dict) or predecessors.FIELD not in fields:
        return False
    return not predecessors.are_handed_on(ctx.connection.asker, fields)


async def _create_after(ctx: Context, request: Request) -> OkOrJoined:
    """Accept a message that waits for others. One that was accepted with its key is
    known by it, whatever has become of these."""
    key = idempotency.key_in(ctx.connection.asker, dict(request))
    said: predecessors.Answers = {}
    if key is None or key.among(ctx.owner) is None:
        ctx.owner.admission.check_open()
        said = await predecessors.answers(ctx.owner, [request])
        predecessors.check(request, said, ctx.connection.asker)
    else:
        predecessors.write_as_kept(ctx.owner, request)
    reply = _create(ctx, request)
    ctx.asker.hear(said.items())
    if len(said) >= _MANY:
        ctx.owner.loop.run_in_executor(ctx.owner.pools.looks, heap.give_back)
    return reply


def _create(ctx: Context, request: Request) -> OkOrJoined:
    owner = ctx.owner
    accepted = idempotency.accept_request(owner, ctx.connection.asker, request)
    owner.wake()
    return idempotency.answered(accepted, owner.full_id(accepted.msg_id))


def prep_message(ctx: Context, request: Request) -> Reply | Awaitable[Reply]:
    """Begin a message: attachments follow, then commit."""
    if _names_others(ctx, request):
        return _prep_after(ctx, request)
    return _prep(ctx, request)


async def _prep_after(ctx: Context, request: Request) -> Reply:
    """As `prep_message`, of one that waits for others."""
    said = await predecessors.answers(ctx.owner, [request])
    predecessors.check(request, said, ctx.connection.asker)
    reply = _prep(ctx, request)
    return reply if isinstance(reply, tuple) else await reply


def _prep(
    ctx: Context, request: Request
) -> tuple[Literal["ok"], str] | tuple[Literal["ok"], str, str] | Awaitable[Reply]:
    asker = ctx.connection.asker
    key = idempotency.key_in(asker, request)
    preparer = idempotency.preparer_in(asker, request)
    if key is not None:
        prepared = ctx.owner.prepared
        if prepared is None:
            return _prepare_after_reading(ctx.owner, request, preparer, key)
        return _prepare_keyed(ctx.owner, prepared, request, preparer, key)
    ctx.owner.admission.check_open()
    msg_id = idempotency.prepare(ctx.owner, request, preparer, None)
    return "ok", ctx.owner.full_id(msg_id)


def _prepare_keyed(
    owner: Owner,
    prepared: dict[str, str],
    request: JsonObject,
    preparer: Preparer,
    key: Key,
) -> tuple[Literal["ok"], str, str]:
    msg_id, state = idempotency.prepare_once(owner, prepared, request, preparer, key)
    return "ok", owner.full_id(msg_id), state


async def _prepare_after_reading(
    owner: Owner, request: JsonObject, preparer: Preparer, key: Key
) -> tuple[Literal["ok"], str, str]:
    prepared = await idempotency.read_prepared(owner)
    return _prepare_keyed(owner, prepared, request, preparer, key)


def single_que(ctx: Context, request: Request) -> OkOrJoined | Awaitable[OkOrJoined]:
    """Accept a message unless one waits; answer the id of the one that does."""
    newest = message_list.newest_waiting(ctx.owner)
    if newest is not None:
        return "ok", ctx.owner.full_id(newest)
    return create_message(ctx, request)


def attach_message(ctx: Context, request: Request) -> Awaitable[Ok[str]]:
    """Copy a file into a message in prep: a passed descriptor, or a path that is opened
    with the asker's rights."""
    msg_id = msg_id_in(request)
    path = _path_in(request)
    name = names.attachment(request.get("name") or os.path.basename(path))
    preparer = idempotency.preparer_in(ctx.connection.asker, request)
    state = ctx.owner.spool.find(msg_id)
    if state not in (State.PREP, None):
        raise AlreadyCommitted(idempotency.ALREADY)
    if state is State.PREP:
        preparer.check_message(ctx.owner, msg_id)
    ctx.owner.admission.check_open()
    passed, asker = ctx.connection.take_fd(), ctx.connection.asker
    source = passed if passed is not None else _opened(path, asker.peer)
    with contextlib.ExitStack() as work:
        work.callback(os.close, source)
        # What this user says of it is believed: it could write the file itself.
        trusted = passed is not None and asker.is_own
        digests = attach.digests_of(request.get("digests")) if trusted else None
        upload = attach.begin(ctx.owner.spool, msg_id, name)
        work.enter_context(ctx.owner.spool.working_on(msg_id))
        take = _taking(ctx.owner.spool.dir_fd, source, upload, digests)
        return _take(ctx.owner, work.pop_all(), upload, request.get("sha256"), take)


def _taking(
    spool_fd: int, source: int, upload: attach.Upload, digests: Attachment | None
) -> Callable[[], Attachment]:
    """Return what a thread does to take a file in; with its digests, if they are known."""
    if digests is None:
        return functools.partial(attach.copy, spool_fd, source, upload)
    return functools.partial(attach.take_in, spool_fd, source, upload, digests)


def open_file(request: JsonObject, peer: peers.Peer) -> int:
    """Open the file that a request names, with the rights of who asks."""
    return _opened(_path_in(request), peer)


def _path_in(request: JsonObject) -> str:
    path = request.get("pathname")
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise BadInput("pathname is not an absolute path")
    return path


def _opened(path: str, peer: peers.Peer) -> int:
    try:
        return peers.open_as(path, peer)
    except OSError as error:
        if is_busy(error):
            raise
        raise BadInput(f"{path}: {error.strerror or error}") from None


async def _take(
    owner: Owner,
    work: contextlib.ExitStack,
    upload: attach.Upload,
    sha256: object,
    take: Callable[[], Attachment],
) -> Ok[str]:
    """Take a file in; `work` ends when the thread has done it."""
    spool = owner.spool
    try:
        with work:
            taken = await owner.loop.run_in_executor(owner.pools.files, take)
    except OSError as error:
        if is_busy(error):
            raise
        why = error.strerror or error
        raise of_call(error)(f"not accepted: {upload.name}: {why}") from None
    if sha256 not in (None, taken.sha256):
        attach.drop(spool, upload)
        raise NotWhole(f"attachment {upload.name} is not whole; attach it again")
    try:
        await _name_all(owner, upload.msg_id)
    except (OSError, RQError):
        attach.drop(spool, upload)
        raise
    attach.end(spool, upload, taken)
    return "ok", f"{taken.md5}-Attached successfully"


async def _name_all(owner: Owner, msg_id: str) -> None:
    """Name in `msg` what the ancestor attached, before anything else changes there."""
    spool = owner.spool
    if not names.is_ancestors(msg_id) or spool.entry_of(msg_id) is None:
        return
    attached = set(spool.read(msg_id).attachments)
    take = functools.partial(ancestor_files.take, spool.dir_fd, msg_id, attached)
    with spool.working_on(msg_id):
        taken = await owner.loop.run_in_executor(owner.pools.files, take)
    ancestor_files.write_names(spool, msg_id, taken)


def delete_attach_message(ctx: Context, request: Request) -> NowOrLater[str]:
    """Remove an attachment of a message in prep."""
    msg_id = msg_id_in(request)
    if ctx.owner.spool.state_of(msg_id) is not State.PREP:
        raise WrongState("msg not in prep")
    preparer = idempotency.preparer_in(ctx.connection.asker, request)
    preparer.check_message(ctx.owner, msg_id)
    name = names.attachment(request.get("attachment_name"))
    if names.is_ancestors(msg_id):
        return _delete_of_ancestor(ctx.owner, msg_id, name)
    attach.remove(ctx.owner.spool, msg_id, name)
    return "ok", DELETED


async def _delete_of_ancestor(owner: Owner, msg_id: str, name: str) -> Ok[str]:
    await _name_all(owner, msg_id)
    attach.remove(owner.spool, msg_id, name)
    return "ok", DELETED


def commit_message(
    ctx: Context, request: Request
) -> OkOrJoined | Awaitable[OkOrJoined]:
    """Accept a prepared message, or join it to an equal one, which the answer names."""
    msg_id, asker = msg_id_in(request), ctx.connection.asker
    key = idempotency.key_in(asker, request)
    return _commit(ctx.owner, key, msg_id, idempotency.preparer_in(asker, request))


def _commit(
    owner: Owner, key: Key | None, msg_id: str, preparer: Preparer
) -> OkOrJoined | Awaitable[OkOrJoined]:
    state = owner.spool.find(msg_id)
    if state is not State.PREP:
        committed = idempotency.committed(owner, key, msg_id)
        if state is None and committed is None:
            raise NoSuchMessage("cannot find message")
        return idempotency.already(owner, committed)
    owner.admission.check_open()
    entry = owner.spool.entry(msg_id)
    preparer.check_message(owner, msg_id)
    if entry.committing is not None:
        return _commit_again(owner, key, msg_id, preparer, entry.committing)
    if entry.busy:
        raise Busy("msg is being worked on: an attach has not ended; ask again")
    message = owner.spool.read(msg_id)
    place = owner.queue.message(State.PREP, msg_id) / ATTACH
    ancestors = names.is_ancestors(msg_id) and place.is_dir()
    if not ancestors:
        attach.sweep(owner.spool, message)
        if not message.attachments:
            return idempotency.accept(owner, message)
    with contextlib.ExitStack() as work:
        ended = owner.loop.create_future()
        work.enter_context(owner.spool.committing(msg_id, ended))
        return _commit_with_files(owner, msg_id, work.pop_all())


async def _commit_again(
    owner: Owner,
    key: Key | None,
    msg_id: str,
    preparer: Preparer,
    first: asyncio.Future[None],
) -> OkOrJoined:
    """Answer a commit that was asked for while an equal one waits for the disk."""
    await asyncio.wait([first])
    reply = _commit(owner, key, msg_id, preparer)
    return await reply if inspect.isawaitable(reply) else reply


async def _commit_with_files(
    owner: Owner, msg_id: str, work: contextlib.ExitStack
) -> OkOrJoined:
    """Accept a prepared message once its files are on disk; `work` ends then."""
    try:
        with work:
            message = await _verified(owner, msg_id)
    except OSError as error:
        if is_busy(error):
            raise
        raise NotWhole(f"attachments are not on disk: {error.strerror}") from None
    owner.admission.check_open()  # much may have happened since it was asked
    return idempotency.accept(owner, message)


async def _verified(owner: Owner, msg_id: str) -> Message:
    """Return a prepared message, all of whose attachments are on disk."""
    spool = owner.spool
    message = spool.read(msg_id)
    deep = spool.entry(msg_id).since < owner.began_at
    if names.is_ancestors(msg_id):
        message = await _all_named(owner, message)
    run = owner.loop.run_in_executor
    await run(owner.pools.files, attach.verify, spool.dir_fd, message, deep)
    return message


async def _all_named(owner: Owner, message: Message) -> Message:
    """Return a message that is being committed with all that the ancestor attached;
    BadInput when a file cannot be taken."""
    spool, msg_id = owner.spool, message.msg_id
    attached = set(message.attachments)
    take = functools.partial(ancestor_files.take, spool.dir_fd, msg_id, attached)
    taken = await owner.loop.run_in_executor(owner.pools.files, take)
    message = ancestor_files.give_names(spool, message, taken)
    ancestor_files.check(spool, message)
    attach.sweep(spool, message)
    return message


def clone_message(ctx: Context, request: Request) -> Awaitable[Ok[str]]:
    """Accept a copy of a message that has ended."""
    by = idempotency.sender_in(ctx.connection.asker, request)
    return _cloned(ctx.owner, msg_id_in(request), by)


async def _cloned(owner: Owner, msg_id: str, by: str | None) -> Ok[str]:
    return "ok", await copies.clone(owner, msg_id, by)


def take_copy(ctx: Context, request: Request) -> Awaitable[Ok[str]]:
    """Accept a copy of a running message of another queue (its `dup`)."""
    return _taken(ctx.owner, request)


async def _taken(owner: Owner, request: JsonObject) -> Ok[str]:
    return "ok", await copies.take_copy_from(owner, request)


# ---- many by one request


def create_messages(ctx: Context, request: Request) -> Awaitable[Ok[list[_Row]]]:
    """Accept messages; answer for each its id, or why it was not accepted."""
    wanted = request.get("messages")
    if not isinstance(wanted, list) or len(wanted) > MOST_AT_ONCE:
        raise BadInput(f"lacking 'messages', a list of at most {MOST_AT_ONCE}")
    ctx.owner.admission.check_open()
    return _all(ctx, wanted)


async def _all(ctx: Context, wanted: Sequence[Json]) -> Ok[list[_Row]]:
    """Accept messages a few at a time; all share one sync, that of the reply."""
    owner, rows = ctx.owner, list[_Row]()
    named = [fields for fields in wanted if _names_others(ctx, fields)]
    said = await predecessors.answers(ctx.owner, named) if named else {}

    def between() -> None:
        ctx.pace.requested()  # each is like a request: folders wait until all are taken
        if owner.spool.group_full:
            owner.wake()

    await in_slices(
        wanted, lambda fields: rows.append(_row(ctx, fields, said)), between
    )
    between()
    ctx.asker.hear(said.items())
    return "ok", rows


def _row(ctx: Context, fields: Json, said: predecessors.Answers) -> _Row:
    try:
        if not isinstance(fields, dict):
            raise BadMessage("a message is a JSON object")
        if _names_others(ctx, fields):
            predecessors.check(fields, said, ctx.connection.asker)
        accepted = idempotency.accept_request(ctx.owner, ctx.connection.asker, fields)
        return idempotency.answered(accepted, accepted.msg_id)
    except RQError as error:
        return wire.failure(error, with_kind=True)


HANDLERS: dict[str, Handler] = {
    "create_message": create_message,
    "prep_message": prep_message,
    "single_que": single_que,
    "attach_message": attach_message,
    "delete_attach_message": delete_attach_message,
    "commit_message": commit_message,
    "take_copy": take_copy,
    "clone_message": clone_message,
    "create_messages": create_messages,
}
