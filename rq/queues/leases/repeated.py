"""Requests for leases that are asked again, because their answer was lost."""

from __future__ import annotations

from rq.queues.attempts.lease import CONFIRM
from rq.queues.attempts.leases import Leases
from rq.queues.leases.grants import Granted


class Repeated:
    """What was handed out for each request, until it is confirmed or given back."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._granted: dict[tuple[str, str], tuple[float, list[Granted]]] = {}

    def __len__(self) -> int:
        return len(self._granted)

    def keep(self, by: str, request: str, granted: list[Granted]) -> None:
        """Remember what somebody has got for a request; "" is none."""
        self._forget()
        if request and granted:
            self._granted.pop((by, request), None)  # the oldest stay in front
            self._granted[by, request] = self._leases.now(), granted

    def of(self, by: str, request: str) -> list[Granted]:
        """Return what somebody has got for the same request and has not confirmed."""
        _, granted = self._granted.get((by, request), (0.0, []))
        return [grant for grant in granted if self._waits(grant)]

    def _waits(self, grant: Granted) -> bool:
        lease = self._leases.held(grant.lease.held.token)
        return lease is not None and not lease.started

    def _forget(self) -> None:
        """Forget the oldest: what was not confirmed by now is given back."""
        before = self._leases.now() - CONFIRM
        while self._granted:
            oldest = next(iter(self._granted))
            if self._granted[oldest][0] > before:
                return
            del self._granted[oldest]
