"""What the desks of a node need of it: where their events, answers and letters go. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rq.broker.cluster.messages import Message, Peers
from rq.broker.state.lines import Event
from rq.resp import Value

TakeBack = Callable[[float], None]


class Outlet(Protocol):
    """What a node gives out, and whom it gives to."""

    node_id: str
    peers: Peers

    def emit(self, event: Event, now: float, *, sync: bool = True) -> None:
        """Apply an event; `sync`: it is durable before anything is told."""

    def answer(self, client: int, value: Value) -> None:
        """Answer a client that waited."""

    def is_there(self, client: int) -> bool:
        """Whether a client that waits can still be answered."""

    def hand(self, client: int, take_back: TakeBack) -> None:
        """A client is handed a job in its next reply. If no byte of the reply leaves, the
        server calls `take_back` with the time, and the job is as it was."""

    def send(self, to: str, message: Message, *, early: bool = False) -> None:
        """Write to another node, when all that was emitted before is durable; `early`:
        it may leave before."""

    def emptied(self, queue: bytes, now: float) -> None:
        """The last job of a queue was handed out."""

    @property
    def memory_level(self) -> int:
        """How short memory is: 0, 1 or 2."""

    @property
    def has_plenty(self) -> bool:
        """Whether less than half of the memory is used."""

    def cannot_keep(self) -> str | None:
        """Return why no new job can be kept; None: it can."""
