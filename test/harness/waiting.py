"""Waiting for what comes about in another process, and for nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rq.errors import RQError


def wait_until(fact: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true value of `fact`; fail after `seconds`."""
    end = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < end:
        try:
            if value := fact():
                return value
        except (RQError, OSError, ValueError, KeyError) as error:
            last = error
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {last or fact()!r}")
