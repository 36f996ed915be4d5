"""The memory of a queue: its live messages, keys, leases, transactions, and what it
owes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rq.spool.bulk import Bulks
from rq.spool.entry import Counts, Entry
from rq.spool.leases import EndedLeases, Held, held_in
from rq.spool.news import News
from rq.spool.outbox import Outbox
from rq.spool.record import Record
from rq.spool.transactions import Transactions
from rq.spool.uniques import Uniques
from rq.words.states import State

KEY_SECONDS = 7 * 86400.0
RELAY_KEY = "relay/"  # how the keys of other hosts begin
RELAY_KEY_SECONDS = 30 * 86400.0
# The broker gives each message a key, which it asks with again for less than a minute:
# remembered for days, as many would fill the memory of a busy queue.
BROKER_KEY = "broker/"
BROKER_KEY_SECONDS = 300.0


# The params that keys of limits, and those that take turns, are made of.
Ranks = tuple[tuple[int, ...], tuple[int, ...]]
NO_RANKS: Ranks = ((), ())


class Accepted(NamedTuple):
    """What was accepted under a key."""

    msg_id: str
    at: float  # epoch seconds
    body: str = ""  # digest of what was sent; "": not known
    joined: bool = False  # the message was there before: nothing new was made

    def to_json(self) -> list[str | float | bool]:
        """Return its row in the index, which most need not tell that they joined."""
        joined = [True] if self.joined else []
        return [self.msg_id, self.at, self.body, *joined]


def key_seconds(key: str) -> float:
    """Return how long a key is remembered. Those of other hosts' relays are a user's; the
    broker's are of no user."""
    if key.startswith(BROKER_KEY):
        return BROKER_KEY_SECONDS
    text = key.rpartition("\t")[2]
    return RELAY_KEY_SECONDS if text.startswith(RELAY_KEY) else KEY_SECONDS


@dataclass(slots=True, kw_only=True)
class Memory:
    """What the journal has told of a queue so far."""

    counts: Counts
    owed: Outbox
    txns: Transactions
    entries: dict[str, Entry] = field(default_factory=dict)  # by msg_id
    keys: dict[str, Accepted] = field(default_factory=dict)  # of deliveries
    brief: deque[str] = field(default_factory=deque)  # keys of the broker, as they came
    leases: dict[str, Held] = field(default_factory=dict)  # that are out, by msg_id
    ended_leases: EndedLeases = field(default_factory=EndedLeases)
    bulks: Bulks = field(default_factory=Bulks)
    news: News = field(default_factory=News)
    uniques: Uniques = field(default_factory=Uniques)
    # How messages stand for which some of these wait: QUEUE/ID, and the last word.
    standings: dict[str, str] = field(default_factory=dict)
    compares: tuple[int, ...] = ()  # params that keys of entries are made of
    ranks: Ranks = NO_RANKS
    adopted: float = 0.0  # since when its messages are ours: epoch seconds
    seen: float = 0.0  # the last time that could be believed: epoch seconds

    # ---- live messages

    def entry(self, msg_id: str) -> Entry:
        """Return what is remembered of a live message; KeyError if it is none."""
        return self.entries[msg_id]

    def entry_of(self, msg_id: str) -> Entry | None:
        """As `entry`; None if the message is not live."""
        return self.entries.get(msg_id)

    def live(self) -> list[str]:
        """Return the live messages, as they came."""
        return list(self.entries)

    def newest_first(self) -> Iterator[str]:
        """Give the live messages, the last first; nothing may change meanwhile."""
        return reversed(self.entries)

    def in_state(self, state: State) -> Iterator[tuple[str, Entry]]:
        """Give the live messages of a state, as they came; nothing may change
        meanwhile."""
        return (pair for pair in self.entries.items() if pair[1].state is state)

    # ---- leases

    def take_lease(self, record: Record) -> None:
        """Remember that a lease has begun, or how it has ended."""
        held = held_in(record)
        if held is None:
            self.ended_leases.take(record)
        else:
            self.leases[record["msg"]] = held

    # ---- keys

    def message_of(self, key: str) -> str | None:
        """Return the message that was accepted under a key; None: none is remembered."""
        accepted = self.keys.get(key)
        return None if accepted is None else accepted.msg_id

    def accepted_with(self, key: str) -> Accepted | None:
        """As `message_of`, with when it came and what was sent."""
        return self.keys.get(key)

    def remember_key(self, key: str, accepted: Accepted) -> None:
        """Remember what was accepted under a key, and of the broker's none that is old."""
        self.keys[key] = accepted
        if not key.startswith(BROKER_KEY):
            return
        self.brief.append(key)
        while self.brief[0] != key:
            self.forget_key(self.brief[0], accepted.at)
            if self.brief[0] in self.keys:
                return
            self.brief.popleft()

    def remembered_keys(self) -> list[str]:
        """Return all keys under which messages were accepted."""
        return list(self.keys)

    def forget_key(self, key: str, now: float) -> None:
        """Forget a key that is too old to be asked for again."""
        accepted = self.keys.get(key)
        if accepted is not None and now - accepted.at > key_seconds(key):
            del self.keys[key]
