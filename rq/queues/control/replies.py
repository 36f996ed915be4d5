"""Replies that wait until what they tell is durable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import orjson

from rq.errors import OutcomeUnknown, RQError, TooLarge
from rq.queues.control.connection import Slot, framed
from rq.rpc import wire

MUCH = 1024 * 1024  # bytes of replies of one asker, from which on all are counted
UNKNOWN_SECONDS = 30.0  # how long a reply waits for a disk that fails

log = logging.getLogger(__name__)


class Replies:
    """Replies by the commit that they wait for.

    A reply leaves only after everything that was fired before it is durable; so does an
    answer to a question.
    """

    def __init__(self, wake: Callable[[], None], relieve: Callable[[], None]) -> None:
        """`wake` asks for a commit; `relieve` is called when askers leave replies
        untaken."""
        self._wake = wake
        self._relieve = relieve
        self._ready: list[tuple[Slot, bytes]] = []
        self._stalled_since: float | None = None
        self._refusal: RQError | None = None  # in the place of each reply

    @property
    def waiting(self) -> bool:
        """Whether a reply waits for a commit."""
        return bool(self._ready)

    @property
    def stalled(self) -> bool:
        """Whether the last commit failed."""
        return self._stalled_since is not None

    def add(self, slot: Slot, reply: object, at_once: bool = False) -> None:
        """Send a reply with the next commit; `at_once`: now, if commits fail."""
        if self._refusal is not None and not at_once:
            _give(slot, self._refusal)
            return
        data = _encoded(reply, slot.connection.tells_kinds)
        slot.connection.owed += len(data)
        if at_once and (self.stalled or self._refusal is not None):
            slot.data = data
            slot.connection.send_ready()
            return
        # The slot gets its data at the flush, not before: a connection sends whatever
        # its first slots hold as soon as its socket takes it.
        self._ready.append((slot, data))
        self._wake()

    def refuse(self, slot: Slot, error: RQError, at_once: bool = False) -> None:
        """As `add`, with what went wrong."""
        self.add(slot, wire.failure(error, slot.connection.tells_kinds), at_once)

    def flush(self) -> None:
        """Send what waited for the commit that has just succeeded."""
        self._stalled_since = None
        ready, self._ready = self._ready, []
        for slot, data in ready:
            slot.data = data
        much = False
        for slot, _ in ready:
            slot.connection.send_ready()
            much = much or slot.connection.owed > MUCH
        if much:
            self._relieve()

    def stall(self, reason: str | None) -> None:
        """The commit failed: replies wait, and after a while say that the outcome is
        unknown."""
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since = now
        if now - self._stalled_since < UNKNOWN_SECONDS:
            return
        self._answer_all(OutcomeUnknown(f"outcome unknown: {reason}"))

    def refuse_all(self, error: RQError) -> None:
        """There will be no commit any more: answer with this all that wait, and whatever
        is asked from now on."""
        self._refusal = error
        self._answer_all(error)

    def _answer_all(self, error: RQError) -> None:
        ready, self._ready = self._ready, []
        for slot, data in ready:
            slot.connection.owed -= len(data)
            _give(slot, error)


def _give(slot: Slot, error: RQError) -> None:
    """Answer with what went wrong, at once."""
    slot.data = framed(error, slot.connection.tells_kinds)
    slot.connection.owed += len(slot.data)
    slot.connection.send_ready()


def _encoded(reply: object, tells_kinds: bool) -> bytes:
    """Return the frame of a reply; also of one that cannot be written, for the asker
    waits for it."""
    try:
        data = orjson.dumps(reply)
    except orjson.JSONEncodeError:
        log.exception("a reply cannot be written as JSON")
        return framed(RQError("the answer cannot be written as JSON"), tells_kinds)
    if len(data) > wire.REPLY_LIMIT:
        log.error("a reply of %d bytes is more than a frame may hold", len(data))
        error = TooLarge(
            f"the answer has {len(data)} bytes, more than the {wire.REPLY_LIMIT} that a "
            "reply may have: ask for less"
        )
        return framed(error, tells_kinds)
    return wire.frame(data)
