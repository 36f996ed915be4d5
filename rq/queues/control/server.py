"""The control socket of a queue: each request is guarded, then handed to the handler of
its command.

A handler gets its request as a value, calls one thing, and returns the reply, or a
coroutine that does. What it fires is promised when its reply leaves, after the group is durable. While
the disk does not take writes, only commands that change nothing and look at no message are
answered.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable

from rq.access import sockets
from rq.access.roles import Role
from rq.config import secrets
from rq.config.admin import Admin
from rq.errors import Closed, DiskFailed, Displaced, Down, RQError, not_done
from rq.proc.listening import Listener
from rq.queues.control import (
    bulks,
    change,
    create,
    edit,
    lease_requests,
    lease_words,
    notices,
    outbox,
    proof,
    query,
    restore,
    transactions,
)
from rq.queues.control.command import Context, Handler, Reply, request_in
from rq.queues.control.connection import Connection, Slot, turn_away
from rq.queues.control.connections import Clients
from rq.queues.owner.owner import Owner
from rq.rpc import wire
from rq.rpc.lines.commands import COMMANDS, Answered, Command

log = logging.getLogger(__name__)
HANDLERS: dict[str, Handler] = {
    **query.HANDLERS,
    **create.HANDLERS,
    **change.HANDLERS,
    **edit.HANDLERS,
    **bulks.HANDLERS,
    **lease_requests.HANDLERS,
    **lease_words.HANDLERS,
    **transactions.HANDLERS,
    **outbox.HANDLERS,
    **proof.HANDLERS,
    **notices.HANDLERS,
    **restore.HANDLERS,
}


class Server:
    """Answers for one queue."""

    def __init__(
        self,
        owner: Owner,
        sock: socket.socket,
        clients: Clients,
        context: Callable[[Connection], Context],
    ) -> None:
        self._owner = owner
        self._connections = clients.connections
        self._replies = clients.replies
        self._pace = clients.pace
        self._context = context
        group = owner.main.admin_group
        self._policy = sockets.policy(sockets.QUEUE_OTHERS, group)
        self._contexts: dict[Connection, Context] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = Listener(sock, owner.loop, self._welcome)

    # ---- connections

    def _welcome(self, sock: socket.socket) -> None:
        """Serve a connection, if the kernel says whose it is."""
        try:
            asker = self._policy.asker(sock)
        except RQError as error:
            turn_away(sock, error)
            return
        loop = self._owner.loop
        connection = Connection(sock, asker, loop, self._request, self._closed)
        self._contexts[connection] = self._context(connection)
        self._connections.add(connection)

    def _closed(self, connection: Connection) -> None:
        self._contexts.pop(connection, None)
        self._connections.remove(connection)

    def close(self) -> None:
        """Take no more connections and hang up."""
        self._listener.close()
        self._connections.close()

    def let_go(self) -> bool:
        """Take no more connections, which wait in the backlog, and hang up on idle ones;
        False: one has asked something meanwhile, and all goes on."""
        self._listener.pause()
        if self._connections.let_go():
            return True
        self._listener.go_on()
        return False

    # ---- requests

    def _request(self, connection: Connection, payload: bytes) -> None:
        self._pace.requested()
        slot = connection.slot()
        word, arg = wire.split_request(payload)
        command = COMMANDS.get(word)
        if command is None:
            self._replies.add(slot, ["ERROR"])
            return
        if not command.lasts:
            self._connections.requests += 1
        try:
            connection.asker.check(word, command.role, command.own)
            self._check_open(command)
        except RQError as error:
            self._refuse(slot, error, at_once=True)
            return
        self._run(slot, (word, command), self._contexts[connection], arg)
        if command.creates and self._pace.behind:
            self._pace.pause(connection)
        if self._owner.spool.group_full:
            self._owner.wake()
            self._pace.pause(connection)

    def _check_open(self, command: Command) -> None:
        """Raise why a command is not answered now, if it is not."""
        if command.answered is Answered.ALWAYS:
            return
        admission = self._owner.admission
        if admission.displaced:
            raise Displaced(admission.displaced)
        if admission.admin is Admin.DOWN and command.answered is Answered.UP:
            raise Down("status: DOWN")
        if admission.restored and command.role is not Role.VIEWER:
            raise Closed(admission.restored)
        if self._replies.stalled:
            why = self._owner.spool.journal_failed
            raise DiskFailed(f"the journal cannot be written: {why}")

    def _run(
        self, slot: Slot, named: tuple[str, Command], context: Context, arg: bytes
    ) -> None:
        word, command = named
        handler = HANDLERS[word]
        try:
            request = request_in(command.takes, arg)
            reply = (
                proof.answer(context, word, handler, request)
                if command.creates
                else handler(context, request)
            )
        except Exception as error:  # noqa: BLE001 - a command is one of the four places
            self._refuse(
                slot, _failure(error), at_once=command.answered is Answered.ALWAYS
            )
            return
        if not isinstance(reply, tuple) and inspect.isawaitable(reply):
            slot.connection.hold()
            task = self._owner.loop.create_task(self._later(slot, command, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._answer(slot, command, reply)

    async def _later(
        self, slot: Slot, command: Command, coming: Awaitable[Reply]
    ) -> None:
        try:
            self._answer(slot, command, await coming, at_once=False)
        except Exception as error:  # noqa: BLE001 - a command is one of the four places
            self._refuse(slot, _failure(error))
        slot.connection.release()

    def _answer(
        self, slot: Slot, command: Command, reply: object, at_once: bool = True
    ) -> None:
        """Send a reply; a client that is no admin reads no secret in it. Who works on a
        message gets it as it is."""
        if command.role is not Role.WORKER:
            reply = self._below_admin(slot, reply)
        self._replies.add(slot, reply, at_once and command.answered is Answered.ALWAYS)

    def _refuse(self, slot: Slot, error: RQError, at_once: bool = False) -> None:
        said = wire.failure(error, slot.connection.tells_kinds)
        self._replies.add(slot, self._below_admin(slot, said), at_once)

    def _below_admin(self, slot: Slot, reply: object) -> object:
        if slot.connection.asker.principal.may(Role.ADMIN):
            return reply
        return secrets.below_admin(reply, self._owner.name)


def _failure(error: Exception) -> RQError:
    """Return what a request has failed of; what is a fault of RQ is logged."""
    if isinstance(error, RQError):
        return error
    if isinstance(error, OSError):
        log.error("a request could not be done: %s", error)
        return not_done(error)
    log.error("a command failed", exc_info=error)
    return RQError("the command failed; the log of the queue says why")
