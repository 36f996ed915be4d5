"""Messages that wait while as many with their key run as may; the cost does not grow with
their number.

Of each key with a free place, one message stands in the schedule for all that wait: the
first of them. When it leaves the schedule for any other reason than that its key has no
place again, the next one stands there.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from rq.message.rank import Rank
from rq.queues.schedule.line import Item
from rq.queues.schedule.order import First, Order, Valid


class Places:
    """Which messages run with each key, and which keys have no place for one more."""

    def __init__(self, most: int = 1) -> None:
        self.most = most  # that run with one key at the same time
        self._running: dict[str, dict[str, None]] = {}

    def __contains__(self, key: object) -> bool:
        """Whether a key has no place."""
        return len(self._running.get(str(key), ())) >= self.most

    def take(self, key: str, msg_id: str) -> None:
        self._running.setdefault(key, {})[msg_id] = None

    def free(self, key: str, msg_id: str) -> None:
        running = self._running.get(key)
        if running is not None:
            running.pop(msg_id, None)
            if not running:
                del self._running[key]

    def who(self, key: str) -> tuple[str, ...]:
        """Return the messages that run with a key, the first first."""
        return tuple(self._running.get(key, ()))


class Excluded:
    """The messages that wait for each key, and those that stand for them in the
    schedule."""

    def __init__(self) -> None:
        self._waiting: dict[str, Order] = {}  # by key; none is empty
        self._stands_for: dict[str, str] = {}  # message: key

    def key_of(self, msg_id: str) -> str | None:
        """Return the key that a message stands for; None when it stands for none."""
        return self._stands_for.get(msg_id)

    def keep(self, key: str, item: Item, rank: Rank) -> None:
        """Put a message aside whose key has no place; one that stood for others is the
        first of them, as before."""
        order = self._waiting.get(key)
        if order is None:
            order = self._waiting[key] = Order()
        if self._stands_for.pop(item.msg_id, None) is None:
            order.add(item, rank)
        else:
            order.put_first(item, rank)

    def release(self, key: str) -> First | None:
        """Return the message that stands for a key from now on, if one waits for it, with
        the priority by which it waited: with another one now, it is dropped when it is met,
        and the next one stands there."""
        order = self._waiting.get(key)
        first = None if order is None else order.first(inf)
        if order is None or first is None:
            return None
        first.rotation.drop()
        if not order:
            del self._waiting[key]
        self._stands_for[first.item.msg_id] = key
        return first

    def leaves(self, msg_id: str, rank: Rank) -> First | None:
        """Take note that a message leaves the schedule; return who stands there now for
        those that it stood for."""
        key = self._stands_for.pop(msg_id, None)
        if key is None:
            return None
        if key in self._waiting:
            self._waiting[key].has_had_turn(rank)
        return self.release(key)

    def release_all(self) -> list[Item]:
        """Forget all keys; return all that wait."""
        items = [item for order in self._waiting.values() for item in order]
        self._waiting.clear()
        self._stands_for.clear()
        return items

    def oldest(self) -> Iterator[Item]:
        """Give of those that wait for each key the one with the smallest due."""
        for order in self._waiting.values():
            item = order.oldest()
            if item is not None:
                yield item

    def in_order(self, valid: Valid) -> Iterator[Item]:
        """Give those that wait, of each key in the order in which they would run."""
        for order in self._waiting.values():
            yield from order.due(inf, valid)
