"""One other node, as this one sees it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rq.broker.cluster.gossip import Address


@dataclass(slots=True)
class Member:
    """Another node; times are seconds of the broker's clock, 0.0 stands for never."""

    node_id: str  # drawn, until a node in handshake has said its own
    address: Address
    since: float
    in_handshake: bool = False
    is_kept: bool = False  # on disk: a start knows it again
    meets: bool = False  # its next greeting asks it to take us in
    leaving: bool = False
    suspected: bool = False
    failed: bool = False
    linked_at: float = 0.0  # since when our connection to it stands
    pinged_at: float = 0.0
    silent_since: float = 0.0  # it should have answered since then
    pong_at: float = 0.0
    takes_marks: bool | None = None  # None: it has said nothing since the link stands
    lines: int = 0  # durable lines of its journal, the most that it said to have
    lag: float = 0.0  # seconds from its last ping to the answer
    # Who holds that it does not answer, and since when that is said.
    reports: dict[str, float] = field(default_factory=dict)

    @property
    def is_linked(self) -> bool:
        """Whether our connection to it stands."""
        return self.linked_at > 0

    @property
    def is_doubted(self) -> bool:
        """Whether it may be away."""
        return self.suspected or self.failed

    @property
    def is_counted(self) -> bool:
        """Whether new copies of jobs may be meant for it, though its link is broken: for
        a moment, or it will be doubted."""
        is_fit = not (self.in_handshake or self.leaving or self.is_doubted)
        return self.is_kept and is_fit

    @property
    def is_usable(self) -> bool:
        """Whether new copies of jobs may be sent to it."""
        return self.is_linked and self.is_counted

    def is_silent(self, now: float) -> None:
        """Count from now, unless it should have answered before."""
        self.silent_since = self.silent_since or now
