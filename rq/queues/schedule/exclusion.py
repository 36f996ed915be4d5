"""Messages that wait while another with their exclusion key runs; the cost does not grow
with their number.

Of each key that nobody runs with, one message stands in the schedule for all: the first
that may run. When it leaves the schedule for any other reason than that its key runs
again, the next one stands there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from rq.queues.schedule.item import Item


class Excluded:
    """The messages that wait for each key, and the one that stands for them in the
    schedule."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Item]] = {}  # by key: heaps
        self._stands_for: dict[str, str] = {}  # message: key
        self._busy: dict[str, None] = {}  # keys for which nobody may stand

    def key_of(self, msg_id: str) -> str | None:
        """Return the key that a message stands for; None when it stands for none."""
        return self._stands_for.get(msg_id)

    def keep(self, key: str, item: Item) -> None:
        """Let a message wait whose key runs."""
        self._stands_for.pop(item.msg_id, None)
        heapq.heappush(self._waiting.setdefault(key, []), item)
        self._busy[key] = None

    def release(self, key: str) -> Item | None:
        """Return the message that stands for a key from now on, if one waits for it."""
        self._busy.pop(key, None)
        waiting = self._waiting.get(key)
        if waiting is None:
            return None
        item = heapq.heappop(waiting)
        if not waiting:
            del self._waiting[key]
        self._stands_for[item.msg_id] = key
        return item

    def leaves(self, msg_id: str) -> Item | None:
        """Take note that a message leaves the schedule; return who stands there now for
        those that it stood for."""
        key = self._stands_for.pop(msg_id, None)
        return None if key is None else self.release(key)

    def release_all(self) -> list[Item]:
        """Forget all keys; return all that wait."""
        items = [item for waiting in self._waiting.values() for item in waiting]
        self._waiting.clear()
        self._stands_for.clear()
        self._busy.clear()
        return items

    def firsts(self) -> Iterator[Item]:
        """Give the first of those that wait for each key that runs."""
        for key in self._busy:
            waiting = self._waiting.get(key)
            if waiting:
                yield waiting[0]
