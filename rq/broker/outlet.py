"""Where the parts of a node put what leaves it. Pure."""

from __future__ import annotations

from typing import Protocol

from rq.broker.lines import Event
from rq.resp import Value


class Outlet(Protocol):
    """What a node gives out."""

    node_id: str

    def emit(self, event: Event, now: float, *, sync: bool = True) -> None:
        """Let an event be true; `sync`: nobody is told before it is durable."""

    def answer(self, client: int, value: Value) -> None:
        """Answer a client that waited."""
