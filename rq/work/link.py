"""The link to a queue's host: asked again and again until it answers.

All that an agent asks may be asked twice: leases by their request id, words by their
tokens.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import orjson

from rq import back_off, visible, wire
from rq.errors import RQError, Unreachable
from rq.kinds import HEADER, PASSING, Kind, kind_of
from rq.nesting import from_json
from rq.work.http import Reply, Request

Heard = TypeVar("Heard")

FIRST, LONGEST = 0.1, 5.0  # seconds between tries
_PASSING = frozenset({429, 500, 502, 503, 504})
_KIND_OF = {401: Kind.LOGIN_NEEDED, 403: Kind.NOT_ALLOWED, 404: Kind.NO_SUCH_QUEUE}
_TEXT = 500  # characters of a host's sentence

log = logging.getLogger(__name__)


class Link:
    """What an agent asks its host by."""

    def __init__(self, ask: Callable[[Request], Awaitable[Reply]], name: str) -> None:
        """`ask` raises Unreachable; `name` is for people."""
        self._ask = ask
        self._name = name
        self._said = ""  # why it is lost, as the log was told
        self._failures = 0

    @property
    def lost(self) -> bool:
        """Whether the last request was not answered."""
        return bool(self._failures)

    async def ask(self, request: Request, patience: float | None = None) -> Reply:
        """Return the answer, as soon as there is one that will not pass, whatever its
        status is. After `patience` seconds (None: never) Unreachable."""
        try:
            async with asyncio.timeout(patience):
                return await self.say(request, _as_it_came)
        except TimeoutError:
            raise Unreachable(self._said) from None

    async def say(self, request: Request, read: Callable[[Reply], Heard]) -> Heard:
        """Return what `read` makes of an answer that will not pass. Where `read` raises
        Unreachable it is none, say a page of a proxy, and the same is said again."""
        while True:
            try:
                reply = await self._ask(request)
                if not _passes(reply):
                    heard = read(reply)
                    self._is_back()
                    return heard
                why = f"{self._name}: {failure_of(reply)}"
            except Unreachable as error:
                why = str(error)
            await self._lose(why)

    async def _lose(self, why: str) -> None:
        self._failures += 1
        if why != self._said:
            self._said = why
            log.warning("%s; it is asked again, what runs goes on", why)
        wait = back_off.delay(self._failures, FIRST, LONGEST)
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    def _is_back(self) -> None:
        self._failures = 0
        if self._said:
            self._said = ""
            log.info("%s answers again", self._name)


def _as_it_came(reply: Reply) -> Reply:
    return reply


def _passes(reply: Reply) -> bool:
    kind = kind_of(reply.headers.get(HEADER.lower()))
    return reply.status in _PASSING if kind is None else kind in PASSING


def failure_of(reply: Reply) -> RQError:
    """Return the failure that an answer tells of."""
    kind = kind_of(reply.headers.get(HEADER.lower())) or _KIND_OF.get(reply.status)
    return wire.error_of(kind or Kind.REFUSED, _sentence(reply))


def _sentence(reply: Reply) -> str:
    try:
        body = from_json(reply.body, "its answer")
    except RQError:
        body = None
    text = body.get("detail") if isinstance(body, dict) else None
    if text:
        return visible.line(str(text)[:_TEXT])
    return (
        f"the host answers with status {reply.status} and does not say why: is it an RQ, "
        "and the URL right?"
    )


def encoded(value: object) -> bytes:
    """Return a request's body."""
    return orjson.dumps(value)
