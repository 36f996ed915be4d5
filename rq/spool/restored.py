"""A queue about which a person must decide before it works: its directory was copied, or
restored from a backup, or it runs a script of the Ruby RQ that RQ replaces."""

from __future__ import annotations

from rq.journal import mark
from rq.layout import QueueDir
from rq.spool import ancestor_script


def why_waiting(queue: QueueDir) -> str | None:
    """Return why a person must decide before a queue works; None: nobody must."""
    if not mark.is_elsewhere(queue.journal_dir):
        return ancestor_script.why_waiting(queue)
    return (
        "its directory was copied or restored, and nothing starts before a person says "
        f"what it is: `rq restore accept {queue.name}` for the same queue, moved here; "
        "the same with `--copy` for a copy, or a backup older than what has run since"
    )
