"""How the messages of a queue stand, in the words that those wait for who name them.

An owner answers of its own messages from memory and folders; its reply leaves after the
sync, as every reply does, so what is told is durable. It keeps nothing on disk for those
who ask: in memory it remembers who wants a hint, and a hint that is lost costs time alone.
A queue without a process is read from its folders, which tell everything after a clean
stop; after any other end nothing is told before its owner has recovered it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rq.layout import QueueDir
from rq.message.after import Standing
from rq.message.causes import Cause
from rq.queues.owner.owner import Owner
from rq.replies import Result
from rq.spool import folders, stopped_cleanly
from rq.words.states import LIVE, State

_OF_STATE = {
    State.DONE: Standing.DONE,
    State.RELAYED: Standing.RELAYED,
    State.ERR: Standing.FAILED,
    State.DISMISSED: Standing.FAILED,
}
NOT_RUN = "not_run"  # the outcome of a message that was cancelled for a predecessor


def of_end(state: State, result: Result) -> Standing:
    """Return how a message stands that has ended."""
    cause = result.get("cause")
    if cause == Cause.NOT_NEEDED:
        return Standing.NOT_NEEDED
    if cause == Cause.AFTER and result.get("outcome") == NOT_RUN:
        return Standing.NOT_RUN
    return _OF_STATE[state]


def of_own(owner: Owner, msg_id: str) -> str:
    """Return how a message of this queue stands."""
    state = owner.spool.find(msg_id)
    if state is None:
        return str(Standing.UNKNOWN)
    if state in LIVE:
        return str(Standing.WAITING)
    return str(of_end(state, owner.spool.status(msg_id)))


def in_folders(queue: QueueDir, ids: list[str]) -> Mapping[str, str] | None:
    """Return how messages stand of a queue without a process; None: that cannot be
    known. Blocks."""
    if not queue.path.is_dir() or not stopped_cleanly(queue):
        return None
    return {msg_id: _in_folder(queue, msg_id) for msg_id in ids}


def _in_folder(queue: QueueDir, msg_id: str) -> str:
    state = folders.find(queue, msg_id)
    if state is None:
        return str(Standing.UNKNOWN)
    if state in LIVE:
        return str(Standing.WAITING)
    return str(of_end(state, folders.read_status(queue, state, msg_id)))
