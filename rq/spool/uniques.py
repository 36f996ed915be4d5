"""The messages by unique key: which wait, which run, which was accepted last.

Memory that follows events; what the keys are for is the rule of `queues.schedule.unique`.
Only a queue with that rule pays for it: without one `keys` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from rq.errors import BadMessage, NoSuchMessage, Unread
from rq.message.message import Message
from rq.spool.entry import Entry
from rq.words.states import State

NO_KEY = ""  # of a message that is known to have none


class Last(NamedTuple):
    """The message that was accepted last under a key."""

    msg_id: str
    at: float  # epoch seconds


class Members:
    """Messages by key, as they came. Nearly all keys have one message, which needs no
    collection: that takes 100 bytes a key instead of 330."""

    def __init__(self) -> None:
        self._of: dict[str, str | dict[str, None]] = {}

    def add(self, key: str, msg_id: str) -> None:
        there = self._of.get(key)
        if there is None or there == msg_id:
            self._of[key] = msg_id
        elif isinstance(there, str):
            self._of[key] = {there: None, msg_id: None}
        else:
            there[msg_id] = None

    def remove(self, key: str, msg_id: str) -> None:
        there = self._of.get(key)
        if there == msg_id:
            del self._of[key]
        elif isinstance(there, dict):
            there.pop(msg_id, None)
            if not there:
                del self._of[key]

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def first(self, key: str) -> str | None:
        """Return the message that came first; None if there is none."""
        there = self._of.get(key)
        return next(iter(there)) if isinstance(there, dict) else there

    def some(self, key: str, most: int) -> list[str]:
        """Return up to `most` messages, as they came."""
        there = self._of.get(key, ())
        return [there] if isinstance(there, str) else list(islice(there, most))


@dataclass(frozen=True, slots=True)
class Keys:
    """How a queue makes its unique keys."""

    key_of: Callable[[Message], str | None]
    params: tuple[int, ...]  # that they are made of
    windowed: bool  # whether one counts on when its message has ended


class Uniques:
    """The unique keys of a queue's messages; `last` tells who was accepted last."""

    def __init__(
        self,
        last: dict[str, Last] | None = None,
        compares: tuple[int, ...] | None = None,
    ) -> None:
        """`compares`: the params that keys of entries are made of, None: there are no
        such keys."""
        self.keys: Keys | None = None
        self.compares = compares
        self.last = last or {}
        self.waiting, self.running = Members(), Members()

    @property
    def on(self) -> bool:
        """Whether the queue has unique keys."""
        return self.keys is not None

    @property
    def windowed(self) -> bool:
        """Whether who was accepted last is remembered."""
        return self.keys is not None and self.keys.windowed

    def key_in(self, message: Message) -> str:
        """Return the key of a message; NO_KEY if it has none."""
        if self.keys is None or message.after:  # what waits for others has no equal
            return NO_KEY
        return self.keys.key_of(message) or NO_KEY

    def key_of(self, msg_id: str, entry: Entry, read: Callable[[str], Message]) -> str:
        """Return the key of a message, by its file when it is not known. Unread: the
        file cannot be read for now; one that is malformed has no key."""
        if entry.unique is None:
            try:
                entry.unique = self.key_in(read(msg_id))
            except Unread:
                raise
            except (BadMessage, NoSuchMessage):
                entry.unique = NO_KEY  # its claim moves it to err
        return entry.unique

    def fill(
        self, entries: Iterable[tuple[str, Entry]], read: Callable[[str], Message]
    ) -> None:
        """Begin again with all live messages. Files are read only of those whose keys
        are not known, or are made of other params."""
        self.waiting, self.running = Members(), Members()
        if self.keys is None:
            self.compares, self.last = None, {}
            return
        is_known = self.compares == self.keys.params
        for msg_id, entry in entries:
            if not is_known:
                entry.unique = None
            if entry.state is State.PREP:
                continue  # its key is found out when it is committed
            if key := self.key_of(msg_id, entry, read):
                self.moved(key, msg_id, State.NOWHERE, entry.state)
        self.compares = self.keys.params
        if not self.windowed:
            self.last = {}

    def moved(self, key: str, msg_id: str, source: State, target: State) -> None:
        """Follow a message to another state."""
        if (members := self._in(source)) is not None:
            members.remove(key, msg_id)
        if (members := self._in(target)) is not None:
            members.add(key, msg_id)
        if source is State.QUE and target is State.GONE:
            self.withdraw(key, msg_id)

    def _in(self, state: State) -> Members | None:
        if state is State.QUE:
            return self.waiting
        return self.running if state is State.RUN else None

    def is_free(self, key: str) -> bool:
        """Whether no message has a key, nor had it of late: much quicker than asking
        which."""
        return not (key in self.waiting or key in self.running or key in self.last)

    def accepted(self, key: str, msg_id: str, at: float) -> None:
        """Remember who was accepted last."""
        self.last[key] = Last(msg_id, at)

    def withdraw(self, key: str, msg_id: str) -> None:
        """A message was removed before it ran: it counts no longer."""
        last = self.last.get(key)
        if last is not None and last.msg_id == msg_id:
            del self.last[key]

    def forget(self, key: str, now: float, seconds: float) -> None:
        """Forget who was accepted last, if that was `seconds` ago."""
        last = self.last.get(key)
        if last is not None and now - last.at >= seconds:
            del self.last[key]
