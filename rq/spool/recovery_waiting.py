"""Messages in que of which no line of the journal tells: from the index, or their files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rq.errors import BadMessage, is_busy
from rq.message import from_disk
from rq.message.rank import UNREAD, from_json, prior
from rq.spool import folders, lost_attempts
from rq.spool.entry import Entry
from rq.spool.index import Index
from rq.spool.store import Spool
from rq.states import State

_READERS = 16  # threads


def take_from_index(spool: Spool, index: Index | None, msg_id: str) -> bool:
    """Take a message from the index; return whether it is in there."""
    indexed = index.entries.get(msg_id) if index else None
    if indexed is None:
        return False
    due, seq, count, attempt, since, key, values = indexed
    rank = from_json(values)
    entry = Entry(State.QUE, State.QUE, due, seq, count, attempt, since, key, rank)
    entry.held = index is not None and msg_id in index.held
    entry.unique = None if index is None else index.uniques.get(msg_id)
    spool.entries[msg_id] = entry
    spool.counts.moved(State.NOWHERE, State.QUE)
    return True


def read_all(spool: Spool, ids: list[str]) -> None:
    """Take messages from their files, in the order of their ids; the malformed go to
    err."""
    if not ids:
        return
    ids.sort()
    with ThreadPoolExecutor(_READERS) as readers:
        for msg_id, data in zip(ids, readers.map(_reader(spool), ids), strict=True):
            _enter(spool, msg_id, data)
            spool.commit_when_full()


def _reader(spool: Spool) -> Callable[[str], bytes | None]:
    dir_fd = spool.dir_fd

    def read(msg_id: str) -> bytes | None:
        try:
            return folders.read_file(f"que/{msg_id}/msg", dir_fd)
        except OSError as error:
            if is_busy(error):  # of the message nothing is known: start again later
                raise
            return None

    return read


def _enter(spool: Spool, msg_id: str, data: bytes | None) -> None:
    entry = spool.entries[msg_id] = Entry(State.QUE, State.QUE, 0.0, 0)
    spool.counts.moved(State.NOWHERE, State.QUE)
    try:
        if data is None:
            raise BadMessage("msg is missing")
        message = from_disk(data, msg_id, spool.clock())
    except BadMessage as error:
        lost_attempts.fail_malformed(spool, msg_id, str(error))
        return
    entry.due, entry.count, entry.attempt = message.due, message.count, message.attempt
    entry.rank = prior(message.priority, UNREAD)
    entry.since, entry.held = spool.clock(), message.held is not None
