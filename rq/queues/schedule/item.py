"""A waiting message as the schedule sees it."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """A waiting message; sorts by when it may run."""

    due: float  # epoch seconds
    seq: int  # order of arrival
    msg_id: str
