"""In whose turn each message of a queue waits: its priority, and its keys by the settings.

Keys are made when a message comes, and kept with it and in the index: no file is read for
them at a claim. Those that are not known by then are read when they are asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from rq.config.settings import QueueConfig
from rq.errors import BadMessage, NoSuchMessage, Unread
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.message.rank import MOST, NO_KEY, PLAIN, UNKNOWN, Rank, prior, rank
from rq.queues.schedule import coalesce
from rq.queues.schedule.coalesce import Groups
from rq.queues.schedule.line import Item
from rq.spool import Spool
from rq.spool.entry import Entry
from rq.words.states import State

_HURRIED = MOST + 1  # the priority of messages that a person wants to run now


class Ranks:
    """The ranks of the messages of a queue."""

    def __init__(self, spool: Spool, config: QueueConfig, groups: Groups) -> None:
        """`groups`: equal messages, which have the highest priority of one of them."""
        self._spool = spool
        self._groups = groups
        self.hurried: set[str] = set()  # messages that a person wants to run now
        self._of_key, self._of_fair = config.limited_params, config.fair_params

    def reload(self, config: QueueConfig) -> None:
        """Go on by other settings; `fill` brings the messages up to them."""
        self._of_key, self._of_fair = config.limited_params, config.fair_params

    def of(self, msg_id: str) -> Rank:
        """Return the rank of a waiting message, as far as it is known."""
        entry = self._spool.entry_of(msg_id)
        rank = PLAIN if entry is None else entry.rank
        return prior(_HURRIED, rank) if msg_id in self.hurried else rank

    def is_valid(self, item: Item, priority: int) -> bool:
        """Whether an item of the schedule tells how its message waits."""
        entry = self._spool.entry_of(item.msg_id)
        return (
            entry is not None
            and entry.state is State.QUE
            and entry.seq == item.seq
            and entry.due == item.due
            and entry.may_run
            and self._stands_at(item.msg_id, entry, priority)
        )

    def _stands_at(self, msg_id: str, entry: Entry, priority: int) -> bool:
        if priority == _HURRIED:
            return msg_id in self.hurried
        own = entry.rank.priority
        return priority in (own, self._groups.priority(entry.key))

    def raised(self, entry: Entry) -> Rank | None:
        """Return the rank that a message has by its group; None: no other than its own."""
        highest = self._groups.priority(entry.key)
        own = entry.rank
        return prior(highest, own) if highest > own.priority else None

    def fill(self, que: Iterable[tuple[str, Entry]]) -> None:
        """Bring the ranks of messages up to the settings in force; those that take turns
        by a key that is not known are read."""
        trusted = self._spool.ranks == (self._of_key, self._of_fair)
        self._spool.ranks = self._of_key, self._of_fair
        for msg_id, entry in que:
            entry.rank = self._kept(entry.rank) if trusted else self._blank(entry.rank)
            if self._of_fair and entry.rank.fair is UNKNOWN:
                with contextlib.suppress(BadMessage, NoSuchMessage):
                    self._read(msg_id, entry)

    def _kept(self, before: Rank) -> Rank:
        """Return a rank as it is, if it has the keys that the settings want."""
        missing = (self._of_key and not before.key) or (
            self._of_fair and not before.fair
        )
        return before if before.is_known and not missing else self._blank(before)

    def _blank(self, before: Rank) -> Rank:
        key = UNKNOWN if self._of_key else NO_KEY
        fair = UNKNOWN if self._of_fair else NO_KEY
        return rank(before.priority, key, fair)

    def add(self, msg_id: str, entry: Entry, message: Message | None) -> None:
        """Take a message that has come into que."""
        if not self._of_key and not self._of_fair:
            return
        if message is not None:
            entry.rank = self._rank(message.priority, message.params)
            return
        entry.rank = self._kept(entry.rank)
        if not entry.rank.is_known:
            with contextlib.suppress(BadMessage, NoSuchMessage):
                self._read(msg_id, entry)

    def key(self, msg_id: str, entry: Entry) -> str | None:
        """Return the key of which only so many messages may run; None: it has none.
        Unread: that is not known for now."""
        if not self._of_key:
            return None
        if not entry.rank.key:
            try:
                self._read(msg_id, entry)
            except Unread:
                raise
            except (BadMessage, NoSuchMessage):
                return None  # its claim says why
        return entry.rank.key

    def _read(self, msg_id: str, entry: Entry) -> None:
        params = self._spool.read(msg_id).params
        entry.rank = self._rank(entry.rank.priority, params)

    def _rank(self, priority: int, params: JsonObject) -> Rank:
        key = coalesce.key(params, self._of_key)
        same = self._of_fair == self._of_key
        fair = key if same else coalesce.key(params, self._of_fair)
        return rank(priority, key or NO_KEY, fair or NO_KEY)
