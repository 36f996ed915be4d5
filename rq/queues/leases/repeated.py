"""Requests for leases that are asked again, because their answer was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rq.message.message import Message
from rq.queues.attempts.lease import CONFIRM, Lease
from rq.queues.attempts.leases import Leases
from rq.queues.leases.grants import Granted

_Pair = tuple[str, Lease]  # a token, and its lease


class Repeated:
    """What was handed out for each request, until it is confirmed or given back."""

    def __init__(self, leases: Leases, read: Callable[[Lease], Message]) -> None:
        """`read` gives the message of a lease: none is kept here."""
        self._leases = leases
        self._read = read
        self._pairs: dict[tuple[str, str], tuple[float, list[_Pair]]] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def keep(self, by: str, request: str, granted: Sequence[Granted]) -> None:
        """Remember what a client has got for a request; "" is none."""
        self._forget()
        if request and granted:
            self._pairs.pop((by, request), None)  # the oldest stay in front
            pairs = [(grant.token, grant.lease) for grant in granted]
            self._pairs[by, request] = self._leases.now(), pairs

    def of(self, by: str, request: str) -> list[Granted]:
        """Return what a client has got for the same request and has not confirmed: he is
        told once more. Unread, BadMessage or NoSuchMessage: a message of it cannot be
        read."""
        _, pairs = self._pairs.get((by, request), (0.0, []))
        granted = [
            self._again(token, lease) for token, lease in pairs if self._waits(lease)
        ]
        for grant in granted:
            grant.lease.answers += 1
        return granted

    def _again(self, token: str, lease: Lease) -> Granted:
        message = self._read(lease)
        return Granted(token=token, lease=lease, message=message)

    def _waits(self, lease: Lease) -> bool:
        return self._leases.held(lease.held.token) is lease and not lease.started

    def _forget(self) -> None:
        """Forget the oldest: what was not confirmed by now is given back."""
        before = self._leases.now() - CONFIRM
        while self._pairs:
            oldest = next(iter(self._pairs))
            if self._pairs[oldest][0] > before:
                return
            del self._pairs[oldest]
