"""What an owner remembers of its messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from rq.spool.entry import Counts, Entry
from rq.spool.outbox import Outbox
from rq.spool.transactions import Transactions


@dataclass(slots=True, kw_only=True)
class Memory:
    """What the journal has told of a queue so far."""

    counts: Counts
    owed: Outbox
    txns: Transactions
    entries: dict[str, Entry] = field(default_factory=dict)  # by msg_id
    # Of deliveries: the message that was accepted with a key, and when (epoch seconds).
    keys: dict[str, tuple[str, float]] = field(default_factory=dict)
    compares: tuple[int, ...] = ()  # params that keys of entries are made of
    adopted: float = 0.0  # since when its messages are ours: epoch seconds
    seen: float = 0.0  # the last time that could be believed: epoch seconds
