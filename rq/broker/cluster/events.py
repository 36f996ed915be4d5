"""What happens to the copies of jobs, as a node notes it. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Copied(NamedTuple):
    """Which nodes may have a copy of a job that is here."""

    job: str
    wanted: int  # copies that were asked for
    may_have: tuple[str, ...]  # ids of nodes, this one too if it keeps it
    announces: bool  # its next queueing, to the other nodes
    waits: bool  # its producer waits for copies
    moves: int  # how often it went to another node for good


class Acked(NamedTuple):
    """A job is acknowledged, and copies elsewhere are to be collected."""

    job: str
    expires: float  # when the job is not here: until when this is kept; else 0


class Buried(NamedTuple):
    """An id is gone, and does not come back before a time."""

    job: str
    until: float  # seconds of the broker's clock
    is_over: bool  # no copy of it shall live anywhere
    moves: int


Event = Copied | Acked | Buried
