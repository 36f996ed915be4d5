"""The events of a live log, as they are sent, and what each holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import orjson

from rq.replies import StoryView
from rq.web import progress
from rq.web.reading import Message


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event, encoded once for all."""

    data: bytes

    def serialize(self, _handler: object = None) -> bytes:
        """Falcon asks for the bytes by this name."""
        return self.data


def event(kind: str, value: object, at: int | None = None) -> Event:
    """Return an event; a viewer that reconnects goes on at byte `at`."""
    mark = b"" if at is None else f"id: {at}\n".encode()
    body = orjson.dumps(value)
    return Event(mark + b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n")


PING = Event(b": still here\n\n")
HELLO = Event(b"retry: 1500\n\n")


class LogState(TypedDict):
    """What a viewer of the log wants to know of its message."""

    state: str
    text: str
    part: float | None  # that is done, from 0 to 1, if its script says so
    attempt: int
    story: StoryView


def state_of(message: Message) -> LogState:
    """Return what a viewer of the log wants to know of its message."""
    text = str(message["result"].get("job_status") or "")
    return {
        "state": message["state"],
        "text": text,
        "part": progress.part_done(text) if message["state"] == "run" else None,
        "attempt": message.get("attempt", 0),
        "story": message["story"],
    }


def unfinished(data: bytes) -> int:
    """Return how many bytes at the end begin a character of UTF-8 and do not end it.

    >>> [unfinished(b) for b in (b"a", "ü".encode(), "ü".encode()[:1], b"\\xff")]
    [0, 0, 1, 0]
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character: look for its first byte
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if back < need and byte < 0xF8 else 0
    return 0


def line_start(piece: bytes) -> int:
    """Return at which byte of a piece of a log, which may begin anywhere, a view begins.

    With the first whole line; in a line that has no end there, where it is written over
    first; else with the first whole character. So the bytes before can be loaded later
    and nothing is shown twice, or cut in two. static/js/pieces.js has the same rule.

    >>> [line_start(b) for b in (b"ne\\nnext\\n", b"10 %\\r20 %\\n", b"\\xbcber", b"\\r\\n")]
    [3, 5, 1, 0]
    """
    newline = piece.find(b"\n", 0, len(piece) - 1)
    if newline >= 0:
        return newline + 1
    over = piece.find(b"\r", 0, len(piece) - 1)
    if over >= 0 and piece[over + 1] != 10:
        return over + 1
    inside = (at for at, byte in enumerate(piece[:3]) if byte & 0xC0 != 0x80)
    return next(inside, min(3, len(piece)))
