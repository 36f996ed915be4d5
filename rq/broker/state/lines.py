"""Each event of a broker as a line of its journal. Pure.

A line holds absolute values, so that a fold over some that a snapshot already has in it
ends the same. Names and bodies that are not UTF-8 stand in base64, under a name of their
own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import cast

from rq.broker.state import groups, job, reliable
from rq.broker.state.body import Place, PlaceOf, no_file

Record = dict[str, object]
_Texts = Sequence[str]
# Which body, then what its place is of.
_File = tuple[int, str, int, int, int] | tuple[int, str, int, int]
Event = job.Event | reliable.Event | groups.Event
_WORDS: Mapping[type[Event], str] = {
    job.Added: "add",
    job.Queued: "queue",
    job.Given: "give",
    job.Put: "put",
    job.Removed: "remove",
    job.Paused: "pause",
    job.Newest: "newest",
    job.Flushed: "flush_jobs",
    job.Leaving: "leave",
    job.Copied: "copied",
    job.Acked: "acked",
    job.Buried: "buried",
    reliable.Pushed: "push",
    reliable.Popped: "pop",
    reliable.Acked: "ack",
    reliable.Named: "name",
    reliable.Deleted: "delete",
    reliable.Cleared: "clear",
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
_MANY = frozenset({"ids", "times", "jobs", "may_have"})
_BODIES = frozenset({"body", "bodies", "contents"})
_EVENTS = {word: kind for kind, word in _WORDS.items()}
# Of each kind: all its fields, those that hold bytes, and those that are something else
# in a line, with their places.
_NAMES = {kind: ("ev", *kind._fields) for kind in _WORDS}
_ENCODED = {
    kind: [name for name in kind._fields if name in _BYTES | _MANY_BYTES]
    for kind in _WORDS
}
_OTHERS = {
    kind: [
        (at, name)
        for at, name in enumerate(kind._fields)
        if name in _BYTES | _MANY_BYTES | _MANY
    ]
    for kind in _WORDS
}


def record(event: Event) -> Record:
    """Return the fields of an event's line; those of its journal are not among them."""
    kind = type(event)
    fields: Record = dict(zip(_NAMES[kind], (_WORDS[kind], *event), strict=True))
    for name in _ENCODED[kind]:
        value = fields[name]
        if type(value) is bytes:  # in memory, as most are
            try:
                fields[name] = value.decode()
            except UnicodeDecodeError:
                fields[f"{name}64"] = b64encode(value).decode()
                del fields[name]
            if value:
                continue
        _put(fields, name, value)
    return fields


def _put(fields: Record, name: str, value: object) -> None:
    """Put several bodies, or one that may lie in a file."""
    if isinstance(value, bytes):
        _put_files(fields, (value,))
        fields[name] = value.decode()
        return
    values = cast("Sequence[bytes]", value)
    if not all(values):
        _put_files(fields, values)
    try:
        fields[name] = [value.decode() for value in values]
    except UnicodeDecodeError:
        fields[f"{name}64"] = [b64encode(value).decode() for value in values]
        del fields[name]


def _put_files(fields: Record, bodies: Sequence[bytes]) -> None:
    """Tell which bodies lie in files, and where; as bytes they are empty."""
    places = [
        (number, body.file.name, body.size, body.crc, body.offset)
        for number, body in enumerate(bodies)
        if isinstance(body, Place)
    ]
    if places:
        fields["files"] = places


def event(fields: Mapping[str, object], place_of: PlaceOf = no_file) -> Event | None:
    """Return the event of a line; None for lines of the journal itself. `place_of` gives
    the place of a body that lies in a file."""
    kind = _EVENTS.get(str(fields.get("ev")))
    if kind is None:
        return None
    values = list(map(fields.get, kind._fields))
    for at, name in _OTHERS[kind]:
        value = values[at]
        if type(value) is str:  # as nearly always
            values[at] = value.encode()
        else:
            values[at] = _value(fields, name)
    if "files" in fields:
        at = next(n for n, name in enumerate(kind._fields) if name in _BODIES)
        places = cast("list[_File]", fields["files"])
        values[at] = _placed(values[at], places, place_of)
    return kind._make(values)


def _placed(value: object, places: Sequence[_File], place_of: PlaceOf) -> object:
    """Return bodies, or one, with places for those that lie in files."""
    bodies = list(value) if isinstance(value, tuple) else [value]
    for number, name, size, crc, *offset in places:
        # One body had a file for itself, before several shared one.
        bodies[number] = place_of(name, size, crc, offset[0] if offset else 0)
    return tuple(bodies) if isinstance(value, tuple) else bodies[0]


def _value(fields: Mapping[str, object], name: str) -> object:
    value = fields.get(name)
    if name in _BYTES:
        text = cast("str | None", value)
        return b64decode(str(fields[f"{name}64"])) if text is None else text.encode()
    if name in _MANY_BYTES:
        if value is None:
            return tuple(map(b64decode, cast("_Texts", fields[f"{name}64"])))
        return tuple(text.encode() for text in cast("_Texts", value))
    return tuple(cast("list[object]", value))
