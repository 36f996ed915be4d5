"""What a node has dropped as a whole, taken apart in slices: to free a million objects at
once would hold the loop. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sized

_SLICE = 2000  # objects at a time


class Freeing:
    """Containers that are not needed any more."""

    def __init__(self) -> None:
        self.left: list[tuple[Sized, Callable[[], object]]] = []

    def __bool__(self) -> bool:
        return bool(self.left)

    def add(self, container: Sized, pop: Callable[[], object]) -> None:
        """Take a container; `pop` takes something out of it."""
        self.left.append((container, pop))

    def go_on(self) -> None:
        """Free a slice."""
        for _ in range(_SLICE):
            while self.left and not len(self.left[-1][0]):
                self.left.pop()
            if not self.left:
                return
            self.left[-1][1]()
