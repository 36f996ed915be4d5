"""The file `after` in the folder of a message: the names of its predecessors, when there
are more than `MOST_INLINE`.

`msg` is written again at each step of a message, and its lines hold it; ten thousand names
would make each of these hundreds of kilobytes. So they are written once, and synced, before
the line that accepts the message and names the file by its digest. The file never changes
and goes where its folder goes. Of a message that still waits, a file that is not the one
that was accepted makes the message torn: with fewer names it would run too early.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from rq.errors import Torn, Unread, is_busy
from rq.files import beneath, durable
from rq.layout import AFTER_LIST, MSG
from rq.message.after import MOST_INLINE, Wait, wait_in
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.words.nesting import Json

_LIMIT = 8 * 1024 * 1024  # bytes: ten thousand of the longest names are a fifth of it
_DIGITS = 32  # of a digest; it has to find mistakes only
_GONE = "the file `after`, the list of messages that have to end first, is"


def is_long(message: Message) -> bool:
    """Whether the predecessors of a message are to stand in a file of their own."""
    return len(message.after) > MOST_INLINE


def named(message: Message) -> Message:
    """Return a message as it is kept: what it says in place of a long list."""
    said: JsonObject = {"ids": len(message.after), "sha256": _digest(_data(message))}
    return message.with_(after_file=said)


def write(message: Message, path: str, dir_fd: int) -> None:
    """Write the list of a message into its folder, durably, with the name of that."""
    durable.write_new(f"{path}/{AFTER_LIST}", _data(message), dir_fd)
    durable.crash_point("after:list-written")
    durable.sync_files(path, (AFTER_LIST, MSG), dir_fd)


def make_again(wait: Wait | None, path: str, dir_fd: int) -> None:
    """Write the list into a folder that is made again, for a message that waits."""
    if wait is not None and len(wait.ids) > MOST_INLINE:
        durable.write_new(f"{path}/{AFTER_LIST}", _joined(wait.ids), dir_fd)


def whole(message: Message, path: str | None, dir_fd: int) -> Message:
    """Return a message as it was read from a `msg`, with its predecessors. Torn: it waits
    for them, and they are not there."""
    if message.after_file is None or message.after:
        return message
    try:
        return message.with_(after=ids(message.after_file, path, dir_fd))
    except Torn:
        if message.after_end is None:
            raise
        return message  # they are only told any more


def ids(said: Mapping[str, object], path: str | None, dir_fd: int) -> tuple[str, ...]:
    """Return the predecessors in the file of a folder; Torn, or Unread."""
    if path is None:
        raise Torn(f"{_GONE} gone with its folder")
    try:
        place = f"{path}/{AFTER_LIST}" if path else AFTER_LIST
        data = beneath.read(place, dir_fd, _LIMIT)
    except OSError as error:
        if is_busy(error):
            text = f"msg couldn't be read: {error.strerror or error}"
            raise Unread(text) from None
        raise Torn(f"{_GONE} gone") from None
    if _digest(data) != said.get("sha256"):
        raise Torn(f"{_GONE} not the one that was accepted")
    return tuple(data.decode().split())


def in_deposit(fields: Json, deposit_fd: int) -> Json:
    """Return what the `msg` of a folder in new/ says, with the list that lies beside it: a
    person may move a message there that was accepted before."""
    said = fields.get("after_file") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(said, Mapping):
        return fields
    rest: dict[str, Json] = {k: v for k, v in fields.items() if k != "after_file"}
    try:
        return {**rest, "after": list(ids(said, "", deposit_fd))}
    except Torn:
        if not fields.get("after_end"):
            raise
        return rest


def wait_of(fields: JsonObject, path: str | None, dir_fd: int) -> Wait | None:
    """Return what a message waits for that is JSON in a line or a file; None also when its
    list is torn: then its claim says so."""
    said = fields.get("after_file")
    if not isinstance(said, Mapping) or fields.get("after") or fields.get("after_end"):
        return wait_in(fields)
    try:
        return wait_in({**fields, "after": list(ids(said, path, dir_fd))})
    except Torn:
        return None


def _data(message: Message) -> bytes:
    return _joined(message.after)


def _joined(places: tuple[str, ...]) -> bytes:
    return b"".join(f"{place}\n".encode() for place in places)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
