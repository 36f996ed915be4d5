"""Commands and answers with large bodies, which are written and read beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rq.broker.bodies import Bodies
from rq.broker.dialects.call import Blocked, Refusal
from rq.errors import Damaged, cause_of
from rq.logs import fields
from rq.resp import Failure, Value

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
        return refusal.failure


async def read(bodies: Bodies, value: Value) -> Value:
    """Return an answer with the bodies that lie in files."""
    try:
        return await asyncio.to_thread(bodies.read, value)
    except (OSError, Damaged) as error:
        why = cause_of(error) if isinstance(error, OSError) else error
        log.error("a body cannot be read: %s", fields(reason=why))
        return Failure(f"ERR a body cannot be read: {why}")
