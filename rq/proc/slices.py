"""Slices of a loop: how long one thing may take before all else has its turn.

An owner, the broker and the web each serve everybody from one loop. So nothing there may
take long without a look at the clock: it does some, and the rest in later turns. What
happens in between is anything: messages end, clients hang up. Who goes on looks again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

SLICE = 0.005  # seconds

Item = TypeVar("Item")


class Slice:
    """The time that one thing may take, from now on."""

    __slots__ = ("_until",)

    def __init__(self, seconds: float = SLICE) -> None:
        self._until = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until


async def in_slices(
    items: Iterable[Item],
    act: Callable[[Item], object],
    between: Callable[[], None] = lambda: None,
) -> None:
    """Act on each item, and let the loop have its turn every few milliseconds.

    Much may happen in such a turn: `act` has to look again. `between` is called before it.
    """
    turn = Slice()
    for item in items:
        act(item)
        if turn.is_over:
            between()
            await asyncio.sleep(0)
            turn = Slice()
