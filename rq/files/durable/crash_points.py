"""Points where a test may kill the process; nothing happens at them otherwise."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def _killer(wanted: str) -> Callable[[str], None]:
    """Return a hook that kills this process at the Nth passing of a named point."""
    name, _, nth = wanted.partition("#")
    left = [int(nth or 1)]

    def passing(point: str) -> None:
        if point == name:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return passing


# Called with the name of each point that is passed (tests only).
hook: Callable[[str], None] | None = (
    _killer(os.environ["RQ_CRASH_AT"]) if os.environ.get("RQ_CRASH_AT") else None
)


def crash_point(name: str) -> None:
    """Pass a named point."""
    if hook is not None:
        hook(name)


def arm(point: str) -> None:
    """Let this process die at `point`, or `point#N` for the Nth time (tests only)."""
    global hook
    hook = _killer(point) if point else None
