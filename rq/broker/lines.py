"""Each event of a broker as a line of its journal. Pure.

A line holds absolute values, so that a fold over some that a snapshot already has in it
ends the same. Names and bodies that are not UTF-8 stand in base64, under a name of their
own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from rq.broker import groups, jobs, reliable

Record = dict[str, object]
Event = jobs.Event | reliable.Event | groups.Event
_WORDS: Mapping[type[Event], str] = {
    jobs.Added: "add",
    jobs.Queued: "queue",
    jobs.Given: "give",
    jobs.Put: "put",
    jobs.Removed: "remove",
    jobs.Paused: "pause",
    jobs.Newest: "newest",
    reliable.Pushed: "push",
    reliable.Popped: "pop",
    reliable.Acked: "ack",
    reliable.Named: "name",
    groups.Came: "come",
    groups.Got: "get",
    groups.Done: "done",
    groups.Flushed: "flush",
    groups.Pointer: "pointer",
    groups.Last: "last",
}
# Fields that hold any bytes; all other texts are ours.
_BYTES = frozenset({"queue", "body", "key", "group", "contents"})
_MANY_BYTES = frozenset({"bodies"})
_EVENTS = {word: kind for kind, word in _WORDS.items()}


def record(event: Event) -> Record:
    """Return the fields of an event's line; those of its journal are not among them."""
    fields: Record = {"ev": _WORDS[type(event)]}
    values: Sequence[Any] = event
    for name, value in zip(event._fields, values, strict=True):
        if name in _BYTES:
            _put(fields, name, value)
        elif name in _MANY_BYTES:
            _put_many(fields, name, value)
        else:
            fields[name] = value
    return fields


def _put(fields: Record, name: str, value: bytes) -> None:
    try:
        fields[name] = value.decode()
    except UnicodeDecodeError:
        fields[f"{name}64"] = b64encode(value).decode()


def _put_many(fields: Record, name: str, values: Sequence[bytes]) -> None:
    try:
        fields[name] = [value.decode() for value in values]
    except UnicodeDecodeError:
        fields[f"{name}64"] = [b64encode(value).decode() for value in values]


def event(fields: Mapping[str, Any]) -> Event | None:
    """Return the event of a line; None for lines of the journal itself."""
    kind: Any = _EVENTS.get(fields.get("ev", ""))
    if kind is None:
        return None
    values = [_value(fields, name) for name in kind._fields]
    event: Event = kind(*values)
    return event


def _value(fields: Mapping[str, Any], name: str) -> object:
    value = fields.get(name)
    if name in _BYTES:
        return b64decode(fields[f"{name}64"]) if value is None else value.encode()
    if name in _MANY_BYTES:
        if value is None:
            return tuple(map(b64decode, fields[f"{name}64"]))
        return tuple(text.encode() for text in value)
    return tuple(value) if isinstance(value, list) else value
