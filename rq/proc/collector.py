"""Settings of the garbage collector, for a process with very many objects."""

from __future__ import annotations

import gc

_YOUNG = 10_000  # new objects before a collection of the youngest generation
_MIDDLE = 10  # of those before one of the next
_NEVER = 2**30  # of those before one of the oldest


def pause() -> None:
    """Collect nothing: a start makes many objects; they stay, in no reference cycles."""
    gc.disable()


def collect_young() -> None:
    """Collect the young generations, from now on, and never look at all objects.

    With a million messages that would hold the loop for a second. What the collector is
    for, cycles, are young or few here.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.enable()
