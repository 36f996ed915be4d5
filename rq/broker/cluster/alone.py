"""The peers of a node that has none. Pure."""

from __future__ import annotations


class Nobody:
    """No other node."""

    others: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    size = 1

    def is_member(self, _node_id: str) -> bool:
        """Nobody is."""
        return False

    def has_room(self, _node_id: str) -> bool:
        """There is no link."""
        return False

    def takes_marks(self, _node_id: str) -> bool | None:
        """There is no node that does."""
        return False
