"""The events of a broker, and each as a line of its journal. Pure.

A line holds absolute values, so that a fold over some that a snapshot already has in it
ends the same. Names and bodies that are not UTF-8 stand in base64, under a name of their
own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

Record = dict[str, object]


class Added(NamedTuple):
    """A job was taken."""

    job: str
    queue: bytes
    body: bytes
    ctime: int  # nanoseconds: its place in its queue
    created: float  # seconds of the broker's clock
    ttl: float
    retry: float
    delay: float
    due: float  # when it comes into its queue, the next time; 0: never
    queued: bool  # whether it is in it from the start


class Queued(NamedTuple):
    """A job came into its queue again, or for the first time."""

    job: str
    due: float  # when it comes again
    nacks: int
    deliveries: int  # beyond the first


class Given(NamedTuple):
    """Jobs were handed to a client."""

    jobs: tuple[str, ...]


class Put(NamedTuple):
    """A job is out of its queue until it is due."""

    job: str
    due: float


class Removed(NamedTuple):
    """Jobs are gone: acknowledged, deleted, or their time is over."""

    jobs: tuple[str, ...]
    why: str


class Paused(NamedTuple):
    """What goes neither into a queue, nor out of it."""

    queue: bytes
    into: bool
    out: bool


Event = Added | Queued | Given | Put | Removed | Paused
_WORDS: Mapping[type[Event], str] = {
    Added: "add",
    Queued: "queue",
    Given: "give",
    Put: "put",
    Removed: "remove",
    Paused: "pause",
}
_BYTES = frozenset({"queue", "body"})  # all other texts are ours
_EVENTS = {word: kind for kind, word in _WORDS.items()}


def record(event: Event) -> Record:
    """Return the fields of an event's line; those of its journal are not among them."""
    fields: Record = {"ev": _WORDS[type(event)]}
    for name, value in zip(event._fields, event, strict=True):
        if isinstance(value, bytes):
            _put_bytes(fields, name, value)
        else:
            fields[name] = value
    return fields


def event(fields: Mapping[str, Any]) -> Event | None:
    """Return the event of a line; None for lines of the journal itself."""
    kind = _EVENTS.get(fields.get("ev", ""))
    if kind is None:
        return None
    values: list[Any] = []
    for name in kind._fields:
        value = fields.get(name)
        if value is None:
            value = b64decode(fields[f"{name}64"])
        elif name in _BYTES:
            value = value.encode()
        elif isinstance(value, list):
            value = tuple(value)
        values.append(value)
    return kind(*values)


def _put_bytes(fields: Record, name: str, value: bytes) -> None:
    try:
        fields[name] = value.decode()
    except UnicodeDecodeError:
        fields[f"{name}64"] = b64encode(value).decode()
