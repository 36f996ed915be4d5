"""How long to wait before trying again."""

from __future__ import annotations


def delay(attempts: int, first: float = 1.0, ceiling: float = 60.0) -> float:
    """Return the seconds to wait after `attempts` failures in a row, doubling.

    >>> [delay(n) for n in (0, 1, 2, 3, 10)]
    [0.0, 1.0, 2.0, 4.0, 60.0]
    """
    if attempts <= 0:
        return 0.0
    return min(ceiling, first * 2.0 ** min(attempts - 1, 32))
