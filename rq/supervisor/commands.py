"""The commands of the supervisor's control socket: a word and a text in, JSON out.

Each checks its argument, asks the minder or writes a file, and answers; what goes wrong
is the answer to the client, and stops nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import orjson

from rq import __version__, config, logs, names
from rq.access.roles import Role
from rq.access.sockets import Asker
from rq.config import admin, adopted, broker, displaced, trash
from rq.config.settings import RootConfig
from rq.errors import (
    BadConfig,
    BadInput,
    Busy,
    NoSuchQueue,
    NotPermitted,
    Refused,
    RQError,
    of_call,
)
from rq.layout import Root
from rq.message import fields as message_fields
from rq.replies import HelperState, SupervisorStatus
from rq.rpc import loop_client, wire
from rq.supervisor import ancestor, definitions
from rq.supervisor.children import Process
from rq.supervisor.minder import Minder
from rq.words.nesting import Json, from_json
from rq.words.states import Child

CREATE_WAIT = 10.0  # seconds that create_queue waits for the new queue
WAKE_TIMEOUT = 5.0

log = logging.getLogger(__name__)

Reply = list[object]  # a word and what follows from it, as JSON


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what answers it, and what it takes to ask it."""

    handler: Callable[[Commands, str], Awaitable[object]]
    role: Role
    own: bool = False  # for RQ's own user and root alone
    signed: bool = False  # its argument is a name, or JSON; it is told who asks
    makes: bool = False  # others than these ask it where allow_new_queue says so


class Commands:
    """Answers what is asked of the supervisor."""

    def __init__(self, minder: Minder, settings: RootConfig, fingerprint: str) -> None:
        self._minder = minder
        self._table = minder.table
        self._root: Root = minder.root
        self._settings = settings
        self._fingerprint = fingerprint
        self._began = time.time()
        self._errands: set[asyncio.Task[None]] = set()
        self.stop_asked = False

    def use(self, settings: RootConfig) -> None:
        """Answer by settings that have changed."""
        self._settings = settings

    async def answer(self, payload: bytes, asker: Asker) -> object:
        word, arg = wire.split_request(payload)
        command = self.COMMANDS.get(word)
        if command is None:
            return ["error"]
        asker.check(word, command.role, command.own)
        if command.makes and not (asker.is_own or self._settings.allow_new_queue):
            raise NotPermitted(
                "queues cannot be made here, nor changed: allow_new_queue is not true"
            )
        text = arg.decode("utf-8", "replace").strip()
        return await command.handler(
            self, _signed(text, asker) if command.signed else text
        )

    # ---- about the supervisor

    async def _ping(self, _arg: str) -> Reply:
        return ["pong"]

    async def _uptime(self, _arg: str) -> Reply:
        return [int(time.time() - self._began)]

    async def _version(self, _arg: str) -> Reply:
        return [__version__]

    async def _environment_name(self, _arg: str) -> Reply:
        return [self._settings.env]

    async def _queues(self, _arg: str) -> list[str]:
        return sorted(self._table.queues())

    async def _status(self, _arg: str) -> SupervisorStatus:
        now, wall = time.monotonic(), time.time()
        table = self._table.children
        return {
            "pid": os.getpid(),
            "root": str(self._root.path),
            "version": __version__,
            "environment": self._settings.env,
            "fingerprint": self._fingerprint,
            "uptime": int(wall - self._began),
            "children": [child.to_json(now, wall) for child in table.values()],
            "scandir": _state_of(self._root.scandir_state),
            "timers": _state_of(self._root.timers_state),
            "unusable": _if_it_can(definitions.unusable, self._root),
            "scripts": _if_it_can(ancestor.scripts, self._root),
            "displaced": _displaced(self._root),
            "held_timers": adopted.timers(self._root),
        }

    async def _broker(self, arg: str) -> Reply:
        """Let the broker run as config/broker.json says now; with `accept` also one that
        lost its directory."""
        if arg == "accept":
            self._minder.places.begun.forget(displaced.BROKER)
            displaced.release(self._root, displaced.BROKER)
        self._table.mind_broker(broker.read(self._root.broker_config).enabled)
        return ["ok"]

    async def _shutdown(self, _arg: str) -> Reply:
        self.stop_asked = True
        self._table.wake()
        return ["ok"]

    # ---- about a queue that is there

    async def _up(self, name: str) -> Reply:
        return self._set(name, "up", lambda: admin.set_down(self._root, name, False))

    async def _down(self, name: str) -> Reply:
        return self._set(name, "down", lambda: admin.set_down(self._root, name, True))

    async def _pause(self, arg: str) -> Reply:
        """Pause a queue; the argument is JSON by now, and says who asks."""
        name, pause = _pause_in(arg)
        return self._set(name, "pause", lambda: admin.pause(self._root, name, pause))

    async def _resume(self, name: str) -> Reply:
        return self._set(name, "resume", lambda: admin.resume(self._root, name))

    def _set(self, name: str, verb: str, change: Callable[[], None]) -> Reply:
        if name not in self._table.queues():
            raise NoSuchQueue("invalid queue name")
        try:
            change()
        except OSError as error:
            log.warning("%s", logs.fields(queue=name, wanted=verb, reason=error))
            raise of_call(error)(f"not allowed to {verb}: {error.strerror}") from None
        self.send_wake(name)
        return ["ok", name]

    async def _restart(self, name: str) -> Reply:
        if name in displaced.read(self._root):
            self._minder.places.begun.forget(name)
        is_released = displaced.release(self._root, name)
        if is_released and self._root.queue(name).config.is_file():
            self._table.mind_queue(name)
        elif is_released:  # scandir makes it, if a link declares it
            return ["ok", name]
        if name not in self._table.queues():
            raise NoSuchQueue("invalid queue name")
        if self._table.is_deleting(name):
            raise Busy(f"queue {name} is being deleted")
        self._table.restart(name)
        return ["ok", name]

    async def _wake(self, name: str) -> Reply:
        if name not in self._table.queues():
            raise NoSuchQueue("invalid queue name")
        self._minder.try_changed()
        self.send_wake(name)
        return ["ok", name]

    def send_wake(self, name: str) -> None:
        """Tell the queue that something changed, without waiting for it."""
        errand = asyncio.get_running_loop().create_task(self._tell(name))
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _tell(self, name: str) -> None:
        socket = self._root.queue(name).socket
        try:
            await loop_client.ask(socket, "wake", timeout=WAKE_TIMEOUT)
        except RQError as error:
            # A hint: the queue looks at its files by itself within seconds. One that is
            # parked does not, and its socket may have been removed.
            log.debug("%s", error)
            if name in self._table.queues():
                self._minder.wake(name)

    # ---- making and removing queues

    async def _create(self, arg: str) -> Reply:
        data = _object(arg)
        if data is None:
            raise BadInput("queue not created")
        self._minder.places.hold_if_strayed(str(data.get("name", "")))
        try:
            name = definitions.create(self._root, data)
        except BadInput:
            raise BadInput("queue name has invalid characters") from None
        except BadConfig as error:
            raise BadInput(f"queue not created: {error}") from None
        process = await self._until_up(name)
        if process is None or process.state is not Child.UP:
            why = process.reason if process else "it was deleted meanwhile"
            why = why or f"it is not ready after {CREATE_WAIT:.0f} s"
            raise Refused(f"queue not created: it was made and does not run: {why}")
        return ["success", "queue created - awesome"]

    async def _change(self, arg: str) -> Reply:
        """Give a queue other settings; it goes by them at once."""
        data = _object(arg)
        if data is None:
            raise BadInput("a change is {name, changes}")
        name = str(data.get("name", ""))
        if name not in self._table.queues():
            raise NoSuchQueue(f"there is no queue {name:.80}")
        if self._table.is_deleting(name):
            raise Busy(f"queue {name} is being deleted")
        try:
            name = definitions.change(self._root, data)
        except BadConfig as error:
            raise BadInput(f"queue not changed: {error}") from None
        self._minder.reload(name)
        return ["ok", name]

    async def _define(self, arg: str) -> Reply:
        """Make or change a queue that scandir declares; it need not be up yet."""
        data = _object(arg)
        if data is None:
            raise BadInput("a definition is {config, link, form}")
        name = definitions.name_in(data)
        if self._table.is_deleting(name):
            raise Busy(f"queue {name} is being deleted; it comes back after that")
        is_minded = name in self._table.queues()
        self._minder.places.hold_if_strayed(name)
        name = definitions.define(self._root, data)
        self._table.mind_queue(name)
        if is_minded:
            self._minder.reload(name)
        return ["ok", name]

    async def _undefine(self, name: str) -> Reply:
        """Put away a queue whose scandir link is gone."""
        if name not in self._table.queues():
            raise NoSuchQueue("no such queue")
        definitions.undefine(self._root, name)
        self._table.delete(name)
        return ["ok", name]

    async def _delete(self, name: str) -> Reply:
        if names.is_queue_name(name) and definitions.is_alias(self._root, name):
            removed = trash.put(self._root, self._root.queue(name))
            log.info("a link to a queue was moved to %s", removed)
            return ["ok", "started deleting queue"]
        if displaced.release(self._root, name):
            self._minder.places.begun.forget(name)
            if not self._root.queue(name).config.is_file():
                return ["ok", f"there is no queue {name}, and it is held no more"]
        if name not in self._table.queues():
            raise NoSuchQueue("no such queue")
        definitions.begin_deletion(self._root, name)
        self._table.delete(name)
        return ["ok", "started deleting queue"]

    async def _until_up(self, name: str) -> Process | None:
        self._table.mind_queue(name)
        end = time.monotonic() + CREATE_WAIT
        while (left := end - time.monotonic()) > 0:
            seen = self._table.changes
            process = self._table.queues().get(name)
            if process is None or process.state in (Child.UP, Child.FATAL):
                return process
            await self._table.change(seen, left)
        return self._table.queues().get(name)

    COMMANDS: ClassVar[dict[str, Command]] = {
        "ping": Command(_ping, Role.VIEWER),
        "uptime": Command(_uptime, Role.VIEWER),
        "version": Command(_version, Role.VIEWER),
        "environment": Command(_environment_name, Role.VIEWER),
        "queues": Command(_queues, Role.VIEWER),
        "status": Command(_status, Role.VIEWER),
        "wake_queue": Command(_wake, Role.PRODUCER),
        "up_queue": Command(_up, Role.OPERATOR),
        "down_queue": Command(_down, Role.OPERATOR),
        "pause_queue": Command(_pause, Role.OPERATOR, signed=True),
        "resume_queue": Command(_resume, Role.OPERATOR),
        "restart_queue": Command(_restart, Role.OPERATOR),
        "create_queue": Command(_create, Role.ADMIN, makes=True),
        "change_queue": Command(_change, Role.ADMIN, makes=True),
        "delete_queue": Command(_delete, Role.ADMIN),
        "define_queue": Command(_define, Role.ADMIN, own=True),
        "undefine_queue": Command(_undefine, Role.ADMIN, own=True),
        "broker": Command(_broker, Role.ADMIN),
        "shutdown": Command(_shutdown, Role.ADMIN),
    }


def _signed(text: str, asker: Asker) -> str:
    """Return the argument of a command about a queue as JSON that says who asks."""
    fields = dict(_object(text) or {}) if text.startswith("{") else {"queue": text}
    return orjson.dumps({**fields, "who": asker.believed(fields.get("who"))}).decode()


def _pause_in(arg: str) -> tuple[str, admin.Pause]:
    """Return the queue that is to be paused, and how."""
    fields, now = _object(arg) or {}, time.time()
    pause = admin.Pause(
        by=str(fields.get("who") or ""),
        why=message_fields.why(fields.get("why")),
        since=now,
        until=_until(fields.get("until"), now),
    )
    return str(fields.get("queue") or ""), pause


def _until(value: Json, now: float) -> float | None:
    """Return when a pause ends by itself; None: never."""
    if value is None:
        return None
    try:
        until = message_fields.due(value)
    except BadInput:
        raise BadInput(f"until is not epoch seconds: {value!r:.80}") from None
    if until <= now:
        raise BadInput("until is over already: say a time to come")
    return until


def _displaced(root: Root) -> Mapping[str, str]:
    try:
        return {name: displaced.why(name) for name in displaced.read(root)}
    except BadConfig:  # each start of a queue says it
        return {}


def _if_it_can(look: Callable[[Root], dict[str, str]], root: Root) -> dict[str, str]:
    try:
        return look(root)
    except OSError:  # no descriptors are left; the rest of the status is still of use
        return {}


def _object(arg: str) -> Mapping[str, Json] | None:
    try:
        data = from_json(arg, "the argument")
    except BadInput:
        return None
    return data if isinstance(data, dict) else None


def _state_of(path: Path) -> HelperState:
    """Return what a helper wrote about itself; empty when it wrote nothing yet."""
    try:
        return cast(HelperState, config.read_json(path))
    except BadConfig:
        return {}
