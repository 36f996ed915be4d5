"""How long `rq up` waits for queues, and how it names them."""

from __future__ import annotations

_NAMED = 20  # queues


class Patience:
    """Patience with queues that start: it lasts while one after another becomes ready,
    for hundreds take longer than a few."""

    def __init__(self, now: float) -> None:
        """`now`, here and in `ends`, is in seconds of the monotonic clock."""
        self._fewest: int | None = None
        self._since = now

    def ends(self, missing: int, now: float, limit: float) -> bool:
        """Return whether `missing` were never fewer for more than `limit` seconds."""
        if self._fewest is None or missing < self._fewest:
            self._fewest, self._since = missing, now
        return now - self._since > limit


def shortened(queues: list[str]) -> str:
    """Name queues, and of hundreds the first.

    >>> shortened(["a", "b"])
    'a, b'
    """
    more = len(queues) - _NAMED
    named = ", ".join(queues[:_NAMED])
    return f"{named} and {more} more" if more > 0 else named
