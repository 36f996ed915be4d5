"""Long-lived workers, the rules: what they are told, what they say, when one is renewed.

A worker says `ready` on descriptor 3, reads a message as one line of JSON on descriptor
4, works, says how it ended as any script does, and `ready` again. `ready` is to a message
what exit 0 is to a process of its own. At the end of descriptor 4 it exits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

READY = b"ready"


class WorkerPhase(StrEnum):
    """What a long-lived worker is doing."""

    STARTING = "starting"  # it has not yet said `ready`
    FREE = "free"
    TAKEN = "taken"  # it has a message, or is about to
    RETIRED = "ending"  # it gets no more


_ESCAPES = {
    b'\\"': b"\\u0022",
    b"\\\\": b"\\u005c",
    b"\\b": b"\\u0008",
    b"\\f": b"\\u000c",
    b"\\n": b"\\u000a",
    b"\\r": b"\\u000d",
    b"\\t": b"\\u0009",
}
_ESCAPE = re.compile(rb'\\["\\bfnrt]')


def line(values: Mapping[str, str]) -> bytes:
    """Return the line that hands over a message.

    JSON whose texts know one escape only, `\\\\uXXXX`, so that a shell can read it: no
    quotation mark and no backslash stands for itself.
    """
    text = orjson.dumps(values)
    if b"\\" in text:
        text = _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)
    return text + b"\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a worker is kept."""

    messages: int
    seconds: float

    def worn(self, messages: int, age: float) -> bool:
        """Whether it is time for a new one."""
        return messages >= self.messages or age >= self.seconds


def died(exit_status: int | None, signal: str | None, greeted: bool) -> str:
    """Return what is told of a worker that has ended unasked, without a message."""
    how = f"exit status {exit_status}" if signal is None else signal
    when = "without a message" if greeted else "before it said ready"
    return f"a worker ended {when}: {how}"
