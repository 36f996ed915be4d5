"""What happened in a queue, told to programs as it happens: the lines of its journal that
change a message's state, without what only some readers may see.

An event has a place, `JOURNAL.SEQ.CHECKSUM`, behind which a reader goes on. Nothing else is
kept of a reader: what it has not taken stays in the journal, never in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NotRequired, TypedDict, cast

from rq.errors import BadInput
from rq.index.follow import Follower, Word
from rq.index.store import Place
from rq.layout import QueueDir
from rq.spool.record import Record

_PLACE = re.compile(r"([0-9a-f]{8})\.([0-9]{1,18})(?:\.([0-9a-f]{8}))?")
_AT_ONCE = 1000  # lines, and events of them, that are read in one go
_COPIED = ("cause", "outcome", "due", "run_us", "wait_us", "by", "bulk", "txn")


class EventView(TypedDict):
    """A message has come into a state. What it says, `getMessage` tells."""

    event: str
    seq: int  # of the line of the journal
    time: float  # epoch seconds
    queue: str
    msg_id: str
    state: str
    was: NotRequired[str]
    count: NotRequired[int]
    attempt: NotRequired[int]
    cause: NotRequired[str]
    outcome: NotRequired[str]
    due: NotRequired[float]  # epoch seconds
    run_us: NotRequired[int]
    wait_us: NotRequired[int]
    by: NotRequired[str]
    bulk: NotRequired[str]
    txn: NotRequired[str]
    rides: NotRequired[str]  # the message that it ended with


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the journal: its place, and what it tells of messages."""

    place: Place
    events: tuple[EventView, ...]


def place_in(text: str) -> Place:
    """Return the place that a reader names; BadInput when it is none."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise BadInput(
            f"{text!r:.60} is no place of a journal: say the id of an event, JOURNAL.SEQ"
        )
    return Place(journal=match[1], seq=int(match[2]), checksum=match[3])


def name_of(place: Place) -> str:
    """Return a place as `place_in` takes it.

    >>> name_of(Place(journal="0123abcd", seq=7))
    '0123abcd.7'
    >>> name_of(place_in("0123abcd.7.89abcdef"))
    '0123abcd.7.89abcdef'
    """
    checksum = "" if place.checksum is None else f".{place.checksum}"
    return f"{place.journal}.{place.seq}{checksum}"


class Reader:
    """Reads what happened behind a place, a bounded number of lines at a time."""

    def __init__(self, queue: QueueDir, place: Place) -> None:
        self._follower = Follower(queue.journal_dir, place)
        self._name = queue.name

    @property
    def place(self) -> Place:
        return self._follower.at

    @property
    def has_tail(self) -> bool:
        """Whether lines follow that may not be durable; the owner knows."""
        return self._follower.has_tail

    def take_word(self, journal: str, seq: int) -> None:
        """Take what the owner says is durable."""
        self._follower.word = Word(journal=journal, seq=seq)
        self._follower.look_again()

    def has_changed(self) -> bool:
        """Whether there may be something to read; a look costs little."""
        return self._follower.has_changed()

    def batch(self) -> list[Happening]:
        """Return the next lines; for a thread. Moved: the place is none of the journal.
        Damaged: the journal cannot be read on."""
        happenings: list[Happening] = []
        size = 0
        for record in self._follower.read():
            views = tuple(_views_of(record, self._name))
            happenings.append(Happening(self.place, views))
            size += 1 + len(views)
            if size >= _AT_ONCE:
                self._follower.look_again()
                break
        return happenings


def _views_of(record: Record, queue: str) -> Iterator[EventView]:
    """Give what a line tells of messages."""
    if "state" not in record:
        return
    ids = record.get("msgs") or [record["msg"]] if "msg" in record else record["msgs"]
    view: dict[str, object] = {
        "event": record["ev"],
        "seq": record["seq"],
        "time": record["ts"] / 1e6,
        "queue": queue,
    }
    facts = {name: record[name] for name in _COPIED if record.get(name) is not None}  # type: ignore[literal-required]
    for msg_id in ids:
        yield cast(EventView, {**view, "msg_id": msg_id, **_standing(record), **facts})
    for msg_id in record.get("riders", ()):
        rider = {**view, "msg_id": msg_id, "state": record["state"]}
        yield cast(EventView, {**rider, "rides": record["msg"]})


def _standing(record: Record) -> dict[str, object]:
    names = ("state", "was", "count", "attempt")
    return {name: record[name] for name in names if name in record}  # type: ignore[literal-required]
