"""The control socket of a queue: each request is guarded, then done.

While the disk does not take writes, only the verbs that change nothing and look at no
message are answered.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from rq import wire
from rq.access import sockets
from rq.access.roles import Role
from rq.config.admin import Admin
from rq.errors import Refused, RQError, not_done
from rq.proc.listening import Listener
from rq.queues.control.clients import Clients
from rq.queues.control.commands import COMMANDS
from rq.queues.control.connection import Connection, Slot, turn_away
from rq.queues.control.verbs import Command, Context
from rq.queues.owner import Owner

log = logging.getLogger(__name__)


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
            turn_away(sock, str(error))
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

    # ---- requests

    def _request(self, connection: Connection, payload: bytes) -> None:
        self._pace.requested()
        slot = connection.slot()
        word, arg = wire.split_request(payload)
        command = COMMANDS.get(word)
        if command is None:
            self._replies.add(slot, ["ERROR"])
            return
        try:
            connection.asker.check(word, command.role, command.own)
        except Refused as error:
            self._replies.add(slot, ["fail", str(error)])
            return
        refusal = self._refusal(command)
        if refusal is not None:
            self._replies.add(slot, ["fail", refusal], at_once=True)
            return
        self._run(slot, command, self._contexts[connection], arg)
        if command.creates and self._pace.behind:
            self._pace.pause(connection)
        if self._owner.spool.journal.full:
            self._owner.wake()
            self._pace.pause(connection)

    def _refusal(self, command: Command) -> str | None:
        if command.always:
            return None
        if self._owner.admission.admin is Admin.DOWN and not command.down:
            return "status: DOWN"
        if self._owner.admission.restored and command.role is not Role.VIEWER:
            return self._owner.admission.restored
        if self._replies.stalled:
            return f"the journal cannot be written: {self._owner.spool.journal.failed}"
        return None

    def _run(self, slot: Slot, command: Command, context: Context, arg: bytes) -> None:
        try:
            reply = command.handler(context, arg)
        except RQError as error:
            reply = ["fail", str(error)]
        except OSError as error:
            reply = ["fail", _not_done(error)]
        except Exception:
            log.exception("a command failed: %s", command.handler.__name__)
            reply = ["fail", "the command failed; the log of the queue says why"]
        if inspect.isawaitable(reply):
            slot.connection.hold()
            task = self._owner.loop.create_task(self._later(slot, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._replies.add(slot, reply, at_once=command.always)

    async def _later(self, slot: Slot, coming: Awaitable[Any]) -> None:
        try:
            reply = await coming
        except RQError as error:
            reply = ["fail", str(error)]
        except OSError as error:
            reply = ["fail", _not_done(error)]
        except Exception:
            log.exception("a command failed")
            reply = ["fail", "the command failed; the log of the queue says why"]
        self._replies.add(slot, reply)
        slot.connection.release()


def _not_done(error: OSError) -> str:
    log.error("a request could not be done: %s", error)
    return not_done(error)
