"""Asking an owner from an event loop; beside `client`, since most who ask have no loop, and
to load asyncio takes a third of the start of a command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from rq.errors import OutcomeUnknown, Unreachable
from rq.rpc import wire
from rq.rpc.client import LOST, TIMEOUT, Kinds, encode_arg, near


async def ask(
    path: Path, command: str, arg: object = b"", timeout: float = TIMEOUT
) -> Any:
    """As `client.ask`, for a process that must not wait."""
    with near(path) as name:
        try:
            reader, writer = await asyncio.open_unix_connection(name, limit=2**26)
        except OSError as error:
            raise Unreachable(f"nobody answers at {path}: {error.strerror}") from None
    kinds = Kinds()
    try:
        writer.write(kinds.request() + wire.request(command, encode_arg(arg)))
        async with asyncio.timeout(timeout):
            reply = await _reply(reader, kinds)
    except TimeoutError:
        raise OutcomeUnknown(f"{path} did not answer in time: {LOST}") from None
    except (OSError, asyncio.IncompleteReadError):
        raise OutcomeUnknown(f"{path} hung up without an answer: {LOST}") from None
    finally:
        writer.close()
    return orjson.loads(reply)


async def _reply(reader: asyncio.StreamReader, kinds: Kinds) -> bytes:
    replies: list[bytes] = []
    while not replies:
        head = await reader.readexactly(wire.HEAD)
        payload = await reader.readexactly(int(head[4:12]))
        replies = kinds.without([payload])
    return replies[0]
