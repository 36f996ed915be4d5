"""The peers of a node that has none. Pure."""

from __future__ import annotations


class Nobody:
    """No other node."""

    others: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    size = 1
