"""Queues that are deleted, or whose directory is gone: put away once they are down."""

from __future__ import annotations

import logging

from rq import trash
from rq.errors import Refused
from rq.layout import Root
from rq.supervisor.table import Table

LOCK_RETRY = 1.0  # seconds until a queue that cannot be put away yet is tried again

log = logging.getLogger(__name__)


def put_away(root: Root, table: Table, now: float) -> list[str]:
    """Move deleted queues that are down to the trash, forget those that are gone;
    return the names of the queues that were moved."""
    due = [name for name, at in table.deleting.items() if at <= now]
    moved = [
        name for name in due if table.is_down(name) and _moved(root, table, name, now)
    ]
    for name in [*moved, *filter(table.is_down, list(table.forgetting))]:
        table.forget(name)
    return moved


def _moved(root: Root, table: Table, name: str, now: float) -> bool:
    """Move a queue to the trash; False when it cannot be moved yet."""
    queue = root.queue(name)
    try:
        if queue.path.is_dir():
            log.info("moved to %s", trash.put(root, queue))
    except (OSError, Refused) as error:
        log.warning("queue %s is not yet in the trash: %s", name, error)
        table.deleting[name] = now + LOCK_RETRY
        return False
    return True
