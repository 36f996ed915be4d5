"""The clients of a queue, as its loop knows them: connections, replies, pace."""

from __future__ import annotations

from dataclasses import dataclass

from rq.queues.control.connections import Connections
from rq.queues.control.pace import Pace
from rq.queues.control.replies import Replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Whoever is connected to the control socket."""

    connections: Connections
    replies: Replies
    pace: Pace
