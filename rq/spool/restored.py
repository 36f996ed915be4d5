"""A queue whose directory was copied, or restored from a backup."""

from __future__ import annotations

from rq.journal import mark
from rq.layout import QueueDir


def why_waiting(queue: QueueDir) -> str | None:
    """Return why a person must decide before a queue works; None: nobody must."""
    if not mark.is_elsewhere(queue.journal_dir):
        return None
    return (
        "its directory was copied or restored, and nothing starts before a person says "
        f"what it is: `rq restore accept {queue.name}` for the same queue, moved here; "
        "the same with `--copy` for a copy, or a backup older than what has run since"
    )
