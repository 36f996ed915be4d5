"""The context of a command's handler, and the request that comes to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, TypeVar

from rq import names
from rq.errors import BadInput
from rq.message.fields import JsonObject
from rq.queues.asking.asker import Asker
from rq.queues.bulk.worker import Worker
from rq.queues.control.connection import Connection
from rq.queues.control.connections import Connections, Pace
from rq.queues.leases.desk import Desk
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.maintenance.counters import Counters
from rq.queues.maintenance.retention import Retention
from rq.queues.maintenance.stall import Stall
from rq.queues.owner.owner import Owner
from rq.queues.runner.runner import Runner
from rq.rpc.lines.commands import Takes
from rq.words.nesting import Json, from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a handler works with."""

    owner: Owner
    runner: Runner
    connection: Connection
    connections: Connections
    stop: Callable[[], None]
    look: Callable[[], Awaitable[None]]  # at the config, the admin files and new/
    seal: Callable[[], Future[None] | None]
    open_again: Callable[[], None]  # all, from the disk
    stall: Stall
    retention: Retention
    counters: Counters
    checkpoints: Checkpoints
    leases: Desk
    asker: Asker
    bulks: Worker
    pace: Pace


T = TypeVar("T")
# Written as JSON. Most replies are an `Ok`, the others what the ancestor's commands gave.
Reply = Sequence[object] | Mapping[str, object]
Ok = tuple[Literal["ok"], T]
NowOrLater = Ok[T] | Awaitable[Ok[T]]  # later: what waits for a thread or another turn
Request = dict[str, Json]  # read once for all commands: what stands behind the word
Handler = Callable[[Context, Request], Reply | Awaitable[Reply]]


def request_in(takes: Takes, arg: bytes) -> Request:
    """Return what stands behind the word of a command; BadInput unless that is what it
    takes."""
    if takes is not Takes.OBJECT:
        text = arg.strip()
        if not text or (takes is Takes.ANYTHING and not text.startswith(b"{")):
            return {}
    request = from_json(arg, "the argument")
    if not isinstance(request, dict):
        raise BadInput("the argument is not a JSON object")
    return request


def msg_id_in(request: JsonObject) -> str:
    """Return the message that a request is about."""
    if "msg_id" not in request:
        raise BadInput("lacking 'msg_id' field")
    return names.msg_id(request["msg_id"])


def asker(ctx: Context, request: JsonObject) -> str:
    """Return who asks, for the story of a message."""
    return ctx.connection.asker.believed(request.get("who"))
