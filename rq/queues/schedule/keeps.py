"""What keeps a waiting message from running: a value for whoever tells people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """What a message waits for."""

    RIDES = "rides"  # with another, and ends with it
    DUE = "due"
    KEY = "key"  # as many with its key run as may
    OUTSIDE = "outside"  # something outside, which is tried again
    RATE = "rate"  # as many have started as may in that time


@dataclass(frozen=True, slots=True)
class Keeps:
    """What keeps a message, until when, and who."""

    reason: Reason
    until: float | None = None  # epoch seconds; None: until something happens
    by: tuple[str, ...] = ()  # messages that it waits for
    name: str = ""  # the key, or what is outside
