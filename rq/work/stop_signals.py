"""TERM and INT, from the first moment of an agent to its last: who is told to end exits
with 0."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def exit_when_told() -> None:
    """Exit as soon as told to: nothing has begun."""
    for number in SIGNALS:
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    # Not by an exception: it may come while a module is imported, and Python makes
    # another error of one that comes while a class is made.
    os._exit(0)


def call_when_told(act: Callable[[], object]) -> None:
    """Call `act` in the running loop, from now on instead of what was to be done before."""
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, act)


def hear_no_more() -> None:
    """Go on to the end, which has come: a loop that closes would let a signal kill."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
