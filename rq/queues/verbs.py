"""What a verb of the control socket is, and how its argument is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import orjson

from rq import names
from rq.errors import BadInput
from rq.queues.connection import Connection
from rq.queues.owner import Owner
from rq.queues.runner import Runner


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


def object_in(arg: bytes) -> dict[str, Any]:
    """Return the argument, a JSON object; BadInput if it is none."""
    try:
        asked = orjson.loads(arg)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the argument is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise BadInput("the argument is not a JSON object")
    return asked


def with_id(arg: bytes) -> tuple[dict[str, Any], str]:
    """Return the argument, and the message that it is about."""
    asked = object_in(arg)
    if "msg_id" not in asked:
        raise BadInput("lacking 'msg_id' field")
    return asked, names.msg_id(asked["msg_id"])


def asker(ctx: Context, asked: Mapping[str, Any]) -> str:
    """Return who asks, for the story of a message."""
    who = asked.get("who")
    if isinstance(who, str) and who.strip().isprintable() and who.strip():
        return who.strip()[:100]
    return f"user {ctx.connection.peer.uid}"
