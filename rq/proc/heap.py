"""Memory that was freed, given back to the machine.

The C library keeps what is freed between blocks that are still used. After a large request,
whose text and lists took some megabytes for a moment, that may be more than what stays of it.
"""

from __future__ import annotations

import ctypes

_libc = ctypes.CDLL(None)


def give_back() -> None:
    """Give back what is free; other libraries than glibc do that by themselves. Takes a few
    milliseconds, for a thread."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
