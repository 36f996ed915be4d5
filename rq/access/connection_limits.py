"""Limits the connections of each user, so that nobody crowds out others, or RQ itself."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable

from rq.access.sockets import Asker

OTHERS = 0.8  # of all connections: what RQ's own user and root leave to others
EACH = 0.2  # of all connections: what one other user may have
_DESCRIPTORS = 2  # a connection may take one of so many that may be open

Those = Callable[[Asker], bool]


class ConnectionLimits:
    """The connections of one socket, at most `most` of them."""

    def __init__(self, most: int) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY:
            most = max(1, min(most, limit // _DESCRIPTORS))
        self._most = most
        self._others = int(most * OTHERS)
        self._each = int(most * EACH)
        self._of: Counter[int] = Counter()  # connections by uid, of others
        self._all = 0

    def add(self, asker: Asker) -> None:
        self._all += 1
        if not asker.is_own:
            self._of[asker.peer.uid] += 1

    def remove(self, asker: Asker) -> None:
        self._all -= 1
        if not asker.is_own:
            self._of[asker.peer.uid] -= 1
            self._of += Counter()  # drop the zeros

    def excess(self, newest: Asker) -> tuple[int, Those] | None:
        """Return how many there may be, and of whose connections one has to go, when
        the newest is one too many; None when it is not."""
        uid = newest.peer.uid
        if not newest.is_own and self._of[uid] > self._each:
            return self._each, lambda other: not other.is_own and other.peer.uid == uid
        if not newest.is_own and self._of.total() > self._others:
            return self._others, lambda other: not other.is_own
        if self._all > self._most:
            return self._most, lambda other: newest.is_own or not other.is_own
        return None
