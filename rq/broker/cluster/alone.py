"""The peers of a node that has none. Pure."""

from __future__ import annotations


class Nobody:
    """No other node."""

    others: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    size = 1

    def is_member(self, _node_id: str) -> bool:
        """Nobody is."""
        return False
