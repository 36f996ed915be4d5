"""Copies of jobs whose bodies lie in files: read before they are sent, and written before
they are taken, beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rq.broker.bodies import LARGE, Bodies
from rq.broker.body import Place
from rq.broker.cluster.messages import Copy, Message, Replicate, Yours


def _copies(message: Message) -> tuple[Copy, ...]:
    match message:
        case Replicate():
            return (message.copy,)
        case Yours():
            return message.copies
    return ()


def have_places(message: Message) -> bool:
    """Whether bodies have to be read before a message is sent."""
    return any(isinstance(copy.body, Place) for copy in _copies(message))


def are_large(message: Message) -> bool:
    """Whether bodies have to be written before a message is taken."""
    return any(_is_large(copy.body) for copy in _copies(message))


def _is_large(body: bytes) -> bool:
    return not isinstance(body, Place) and len(body) > LARGE


def size_of(message: Message) -> int:
    """Return the bytes of its bodies that are in memory."""
    return sum(
        len(copy.body) for copy in _copies(message) if not isinstance(copy.body, Place)
    )


async def read(bodies: Bodies, message: Message) -> Message:
    """Return a message with its bodies. OSError, Damaged: one cannot be read."""

    def body_of(body: bytes) -> bytes:
        return bodies.read_body(body) if isinstance(body, Place) else body

    return await asyncio.to_thread(_changed, message, body_of)


async def kept(bodies: Bodies, message: Message) -> Message:
    """Return a message whose large bodies are durable, and lie in files. OSError: the
    disk takes nothing more."""

    def place_of(body: bytes) -> bytes:
        return bodies.keep_body(body) if _is_large(body) else body

    return await asyncio.to_thread(_changed, message, place_of)


def _changed(message: Message, change: Callable[[bytes], bytes]) -> Message:
    """Return a message with each body as `change` has it."""
    copies = tuple(copy._replace(body=change(copy.body)) for copy in _copies(message))
    match message:
        case Replicate():
            return message._replace(copy=copies[0])
        case Yours():
            return message._replace(copies=copies)
    return message
