"""The outbox: messages to other queues that the end of a message has caused.

Webhooks and forwarded copies. An entry stays until it has been delivered.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from rq.message.fields import JsonObject
from rq.spool.record import OutEntry

_STORY = "param2"  # of what is owed to many the part that all have in common
_WHOSE = 4  # since, msg_id, files, key
Of = tuple[int, int]  # seq of the line that owes, and which of its entries
# Of an entry in a checkpoint: seq, number, dest, message, then since, msg_id, files, key
# as far as the version that wrote it knew them, then the entry that it is `like`.
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Owed:
    """A message to be delivered to another queue, with a key that makes it one."""

    dest: str
    message: JsonObject
    since: float  # epoch seconds
    msg_id: str = ""  # whose end owes it
    files: bool = False  # the attachments of that one go along
    key: str = ""  # under which the receiver knows this delivery, for ever


def stamped(out: OutEntry) -> OutEntry:
    """Return a new entry of `out` with the end of its key: random bits, and 64 bits of
    the digest of its message.

    In a copy of the directory, or in one that a backup brought back, another message
    gets the same journal, seq and number; its receiver must not take it for this one.
    """
    said = orjson.dumps(out["message"], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(said).hexdigest()[:16]
    return {**out, "bits": f"{secrets.token_hex(8)}{digest}"}


def packed(out: Sequence[OutEntry]) -> list[OutEntry]:
    """Return the entries of a line with a text that several have in common, as the
    story of an end, in the first of them only: `like` says which."""
    first: dict[str, int] = {}
    return [
        _like(entry, first.setdefault(text, number), number)
        if (text := _text_of(entry["message"]))
        else entry
        for number, entry in enumerate(out)
    ]


def _text_of(message: JsonObject) -> str:
    """Return the text that others of the same line may have, too; "" when a copy has
    something else in its place."""
    text = message.get(_STORY)
    return text if isinstance(text, str) else ""


def _like(entry: OutEntry, at: int, number: int) -> OutEntry:
    if at == number:
        return entry
    return {**entry, "message": _without_story(entry["message"]), "like": at}


def _without_story(message: JsonObject) -> JsonObject:
    return {name: value for name, value in message.items() if name != _STORY}


def unpacked(out: Sequence[OutEntry]) -> list[OutEntry]:
    """Return the entries of a line, each with all of its message."""
    return [
        {
            **entry,
            "message": _with_story(entry["message"], out[entry["like"]]["message"]),
        }
        if "like" in entry
        else entry
        for entry in out
    ]


def _with_story(message: JsonObject, other: JsonObject) -> JsonObject:
    return {**message, _STORY: other[_STORY]}


def owed(out: OutEntry, msg_id: str, since: float, journal: str, of: Of) -> Owed:
    """Return what an entry of `out`, in the line that ended `msg_id`, owes; `of` is its
    place in the journal."""
    files = bool(out.get("files"))
    name = key(journal, of, str(out.get("bits", "")))
    return Owed(out["dest"], out["message"], since, msg_id, files, name)


def renewed(owed: Owed, since: float) -> Owed:
    """Return an entry as if it were owed from `since`."""
    return dataclasses.replace(owed, since=since)


IS_KEY = re.compile(r"[0-9a-f]{8}/\d+/\d+(?:/[0-9a-f]{32})?", re.ASCII)


def key(journal: str, of: Of, bits: str = "") -> str:
    """Return the key of an entry; those that older versions wrote have no bits."""
    seq, number = of
    return f"{journal}/{seq}/{number}{'/' if bits else ''}{bits}"


def place_of(key: str) -> Of | None:
    """Return the place in its journal that a key names; None when it is no key."""
    _, _, rest = key.partition("/")
    seq, number, *_ = (*rest.split("/"), "")
    is_place = (seq + number).isascii() and seq.isdecimal() and number.isdecimal()
    return (int(seq), int(number)) if is_place else None


class Outbox(MutableMapping[Of, Owed]):
    """What is owed, in the order in which it came to be.

    The next entry for a queue, and who needs the attachments of a message, are found
    without looking at all entries: the loop asks at every turn.
    """

    def __init__(self, entries: Mapping[Of, Owed]) -> None:
        self._all: dict[Of, Owed] = {}
        self._to: dict[str, OrderedDict[Of, None]] = {}  # queue: what is to be tried
        self._aside: dict[Of, None] = {}
        self._sources: dict[str, list[Of]] = {}  # message: who takes its attachments
        self.newest: Of | None = None
        for of, owed in sorted(entries.items(), key=lambda pair: pair[1].since):
            self[of] = owed

    def __getitem__(self, of: Of) -> Owed:
        return self._all[of]

    def __setitem__(self, of: Of, owed: Owed) -> None:
        """Take an entry as the last of all, also one that is known."""
        self.pop(of, None)
        self._all[of] = owed
        self._to.setdefault(owed.dest, OrderedDict())[of] = None
        if owed.files:
            self._sources.setdefault(owed.msg_id, []).append(of)
        self.newest = of

    def __delitem__(self, of: Of) -> None:
        owed = self._all.pop(of)
        self._aside.pop(of, None)
        self._leave(of, owed.dest)
        if owed.files:
            self._sources[owed.msg_id].remove(of)
            if not self._sources[owed.msg_id]:
                del self._sources[owed.msg_id]

    def _leave(self, of: Of, dest: str) -> None:
        turn = self._to.get(dest, OrderedDict())
        turn.pop(of, None)
        if not turn:
            self._to.pop(dest, None)

    def __iter__(self) -> Iterator[Of]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def copy(self) -> dict[Of, Owed]:
        return self._all.copy()

    def taker_of(self, msg_id: str) -> str | None:
        """Return a queue that has still to get the attachments of a message."""
        takers = self._sources.get(msg_id)
        return self._all[takers[0]].dest if takers else None

    # ---- whose turn it is

    @property
    def dests(self) -> Collection[str]:
        """Return the queues for which there is something to be tried."""
        return self._to.keys()

    def first(self, dest: str) -> Of | None:
        """Return what is to be tried next for a queue."""
        turn = self._to.get(dest)
        return next(iter(turn)) if turn else None

    def in_turn(self, dest: str, most: int) -> list[Of]:
        """Return at most so many of what is to be tried for a queue, the next first."""
        return list(islice(self._to.get(dest, ()), most))

    def put_last(self, of: Of) -> None:
        """Try all others for the same queue before an entry."""
        self._to[self._all[of].dest].move_to_end(of)

    def set_aside(self, of: Of) -> None:
        """Try an entry no more, until it is owed again or all are taken up again."""
        self._leave(of, self._all[of].dest)
        self._aside[of] = None

    @property
    def last_aside(self) -> Owed | None:
        """Return what was set aside last."""
        of = next(reversed(self._aside), None)
        return None if of is None else self._all[of]

    def take_up(self) -> None:
        """Try all again that were set aside."""
        aside, self._aside = self._aside, {}
        for of in aside:
            self._to.setdefault(self._all[of].dest, OrderedDict())[of] = None


def to_json(owed: Mapping[Of, Owed]) -> list[list[object]]:
    """Return a row for each entry; one whose text stands in the row of another entry of
    its line names that at its end."""
    first: dict[tuple[int, str], int] = {}
    rows = []
    for (seq, number), entry in owed.items():
        message, like = entry.message, list[int]()
        if text := _text_of(message):
            at = first.setdefault((seq, text), number)
            message, like = (
                (message, []) if at == number else (_without_story(message), [at])
            )
        whose = [entry.since, entry.msg_id, entry.files, entry.key]
        rows.append([seq, number, entry.dest, message, *whose, *like])
    return rows


def from_json(data: Iterable[Row], journal: str) -> dict[Of, Owed]:
    """Return what a checkpoint of `journal` says is owed."""
    entries: dict[Of, Owed] = {}
    for seq, number, dest, message, *rest in data:
        *whose, like = rest if len(rest) > _WHOSE else (*rest, None)
        if like is not None:
            message = _with_story(message, entries[seq, like].message)
        entries[seq, number] = Owed(dest, message, *whose)
    return {
        of: entry if entry.key else dataclasses.replace(entry, key=key(journal, of))
        for of, entry in entries.items()
    }
