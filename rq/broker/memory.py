"""How much memory a node may use, and what follows when it is short. Pure."""

from __future__ import annotations

_SHORT = 0.75  # of the limit: no copies of jobs are kept from here on
_FULL = 0.95  # nothing comes in
_GB = 1024 * 1024 * 1024


class Memory:
    """The limit of a node."""

    def __init__(self) -> None:
        self.limit = _GB  # bytes
        self.evicts = True  # jobs that nobody will be handed again, when it is full

    def level(self, used: int) -> int:
        """Return 0, 1 when memory is short, or 2 when there is none left.

        >>> memory = Memory()
        >>> memory.limit = 100
        >>> memory.level(74), memory.level(75), memory.level(95)
        (0, 1, 2)
        """
        if used < _SHORT * self.limit:
            return 0
        return 2 if used >= _FULL * self.limit else 1
