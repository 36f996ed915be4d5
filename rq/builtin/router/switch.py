"""The switch of routing: while there are rules, the web's messages go to the router."""

from __future__ import annotations

from rq.layout import Root
from rq.message import guarded

_NOT_ROUTED = frozenset({"rq_router", "relay", *guarded.QUEUES})


def addressed(root: Root, name: str) -> str:
    """Return the queue that the web's routes about messages of queue `name` mean: the
    router, while there are rules for it."""
    routed = name not in _NOT_ROUTED and root.router.exists()
    return "rq_router" if routed else name
