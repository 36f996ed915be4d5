"""The leases of a queue that are out, and when each of them is over.

Their clock runs only while the queue could hear their holders: it leaves out the time in
which the loop stood still, or the journal could not be written. So the stall of an owner
ends no lease.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator

from rq.queues.attempts.lease import Lease
from rq.spool import Held

AGAIN = 0.4  # seconds after which a lease is returned again that is over
# Seconds for which a place in the order is taken at most. A lease may last a day; of one
# that has ended the place stays until its moment comes.
AHEAD = 60.0


class Leases:
    """All leases of one queue, from their claims until their ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lost = 0.0  # seconds that this clock has left out
        self._by_token: dict[str, Lease] = {}
        self._by_id: dict[str, Lease] = {}
        self._order: list[tuple[float, str]] = []  # a heap: deadline, digest
        self._cancelled: dict[str, Lease] = {}  # by digest
        self._begun: list[Held] = []  # confirmed, and the journal is still to be told
        self._number_of: dict[str, int] = {}  # by who holds them
        self._heard_of: dict[str, float] = {}  # who of these has said something, when
        self._heard_last: float | None = None  # of anybody, about any lease

    def __len__(self) -> int:
        return len(self._by_token)

    def __iter__(self) -> Iterator[Lease]:
        """Give all leases, as they were claimed; nothing may change meanwhile."""
        return iter(self._by_token.values())

    def of(self, msg_id: str) -> Lease | None:
        """Return the lease on a message; None: there is none."""
        return self._by_id.get(msg_id)

    def held(self, token: str) -> Lease | None:
        """Return the lease with this digest of a token; None: it is over."""
        return self._by_token.get(token)

    def number_of(self, by: str) -> int:
        """Return how many leases a holder has."""
        return self._number_of.get(by, 0)

    def holders(self) -> Iterable[str]:
        """Return the names of all who hold a lease."""
        return self._number_of

    def silent_for(self, by: str | None = None) -> float | None:
        """Return the seconds since a holder said something of what he holds, or any
        holder did; None: that never was."""
        heard = self._heard_last if by is None else self._heard_of.get(by)
        return None if heard is None else self.now() - heard

    def cancelled(self) -> list[Lease]:
        """Return the leases whose holders should end them."""
        return list(self._cancelled.values())

    def begun(self) -> list[Held]:
        """Return, once, the leases that were confirmed since this was asked, and are
        still out."""
        begun, self._begun = self._begun, []
        return [held for held in begun if held.token in self._by_token]

    # ---- the clock

    def now(self) -> float:
        """Return the time by which leases run out, in seconds."""
        return self._clock() - self._lost

    def leave_out(self, seconds: float) -> None:
        """Give each lease so many more seconds: its holder could not be heard."""
        self._lost += seconds

    # ---- what begins, goes on and ends

    def add(self, lease: Lease) -> None:
        """Take in a lease whose message was claimed."""
        self._by_token[lease.held.token] = lease
        self._by_id[lease.msg_id] = lease
        self._number_of[lease.by] = self._number_of.get(lease.by, 0) + 1
        self.note_cancelled(lease)
        self._queue(lease)

    def note_cancelled(self, lease: Lease) -> None:
        """Note a lease that a person has cancelled, for `cancelled` to return."""
        if lease.cancelled is not None:
            self._cancelled[lease.held.token] = lease

    def hear(self, lease: Lease, seconds: float | None = None) -> None:
        """Take note that its holder has said something; `seconds`: and goes on for so
        long from now."""
        lease.heard = self._heard_of[lease.by] = self._heard_last = self.now()
        if not lease.held.started:
            lease.held.started = True
            self._begun.append(lease.held)
            if lease.held.lasts is not None:
                lease.ends = lease.heard + lease.held.lasts
        if seconds is not None:
            lease.seconds, lease.until = seconds, lease.heard + seconds
        if lease.deadline < lease.queued:  # it is over sooner than it was
            self._queue(lease)

    def forget(self, lease: Lease) -> None:
        """Forget a lease that is over."""
        del self._by_token[lease.held.token]
        del self._by_id[lease.msg_id]
        self._cancelled.pop(lease.held.token, None)
        left = self._number_of[lease.by] - 1
        if left:
            self._number_of[lease.by] = left
        else:
            del self._number_of[lease.by]
            self._heard_of.pop(lease.by, None)

    def _queue(self, lease: Lease) -> None:
        self._queue_at(lease, min(lease.deadline, self.now() + AHEAD))

    def _queue_at(self, lease: Lease, moment: float) -> None:
        lease.queued = moment
        heapq.heappush(self._order, (moment, lease.held.token))

    # ---- what is over

    def over(self, most: int) -> list[Lease]:
        """Return leases that are over, the oldest first, at most so many. Each has to be
        forgotten, or is returned again in a while: what cannot end now keeps no other."""
        ended: list[Lease] = []
        now = self.now()
        while self._order and self._order[0][0] <= now and len(ended) < most:
            at, token = heapq.heappop(self._order)
            lease = self._by_token.get(token)
            if lease is None or lease.queued != at:
                continue  # it has ended, or has another place
            if lease.deadline > now:
                self._queue(lease)  # it was renewed since
            else:
                ended.append(lease)
        for lease in ended:
            self._queue_at(lease, now + AGAIN)
        return ended
