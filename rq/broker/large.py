"""Commands and answers with large bodies, which are written and read beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rq.broker.bodies import Bodies
from rq.broker.body import Place
from rq.broker.dialects.call import Blocked, Refusal
from rq.errors import Damaged, cause_of
from rq.logs import fields
from rq.resp import Failure, Value

_LONGEST = 200  # characters of an answer that the log takes

log = logging.getLogger(__name__)


async def call(
    bodies: Bodies,
    name: bytes,
    args: list[bytes],
    function: Callable[[list[bytes]], Value | Blocked],
) -> Value | Blocked:
    """Obey a command with large bodies, once these are durable."""
    try:
        kept = await asyncio.to_thread(bodies.keep, name, args)
    except OSError as error:
        return Failure(f"MISCONF Errors writing to the AOF file: {error.strerror}")
    try:
        return function(kept)
    except Refusal as refusal:
        kept.clear()  # the thread may hold the list still: these bodies are to go now
        return refusal.failure


async def read(bodies: Bodies, value: Value) -> Value:
    """Return an answer with the bodies that lie in files. Jobs of which the body cannot
    be read are left out, if there are others, and the log names them."""
    return await asyncio.to_thread(_read, bodies, value)


def _read(bodies: Bodies, value: Value) -> Value:
    try:
        return bodies.read(value)
    except (OSError, Damaged) as error:
        if isinstance(value, list) and all(isinstance(each, list) for each in value):
            read = [_read(bodies, each) for each in value]
            rest = [each for each in read if not isinstance(each, Failure)]
            return rest or read[0]
        why = cause_of(error) if isinstance(error, OSError) else error
        log.error("a body cannot be read: %s", fields(reason=why, of=_named(value)))
        return Failure(f"ERR a body cannot be read: {why}")


def _named(value: Value) -> str:
    """Return what stands in an answer beside bodies: a queue, an id."""
    some = value if isinstance(value, list) else []
    texts = (each for each in some if not isinstance(each, Place))
    return " ".join(
        each.decode(errors="backslashreplace") if isinstance(each, bytes) else str(each)
        for each in texts
    )[:_LONGEST]
