"""What the owner shows of many messages; nothing here changes anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from rq import names
from rq.errors import BadInput, NoSuchMessage
from rq.message import PARAMS, Message, param_text
from rq.queues import views
from rq.queues.owner import Owner
from rq.spool import folders
from rq.spool.entry import COUNTED
from rq.states import HASHED, State

LIMIT = 20
MOST = 10_000
LIST_CHARACTERS = 16 * 1024 * 1024  # of params in an answer, which then ends early
_WHOLE = re.compile(r"-?\d{1,9}", re.ASCII)


def newest_waiting(owner: Owner) -> str | None:
    """Return the message that came into que last; None when none waits."""
    return next(_waiting(owner), None)


def _waiting(owner: Owner) -> Iterator[str]:
    """Give waiting messages, the newest first."""
    entries = owner.spool.entries
    for msg_id in reversed(entries):
        entry = entries[msg_id]
        if entry.state is State.QUE and entry.rider_of is None:
            yield msg_id


def in_err(owner: Owner) -> list[str]:
    """Return the messages in err that nobody has acknowledged."""
    return _ids(owner, State.ERR, None)


def _ids(owner: Owner, state: State, limit: int | None, after: str = "") -> list[str]:
    """Return ids in a state, newest first, also those whose folder is not there yet.

    `after`: only those older than that id. Of what has ended no more is looked at than
    is given, however much there is and however far the folders lag.
    """
    spool = owner.spool
    if state is State.QUE:
        return list(islice(_older(_waiting(owner), after), limit))
    if state in (State.PREP, State.RUN):
        live = spool.entries
        there = (i for i in reversed(live) if live[i].state is state)
        return list(islice(_older(there, after), limit))
    unsettled = spool.unsettled
    coming = [i for i, one in unsettled.items() if one.state is state]
    listed = folders.newest_first(spool.queue, state, after)
    staying = (i for i in listed if i not in unsettled)
    found = (*_older(coming, after), *islice(staying, limit))
    return sorted(found, reverse=True)[:limit]


def _older(ids: Iterable[str], after: str) -> Iterator[str]:
    return (i for i in ids if not after or i < after)


def messages(owner: Owner, asked: Mapping[str, Any]) -> Any:
    """Return what the ancestor's command `messages` does."""
    name = str(asked.get("state"))
    limit = _limit(asked)
    if name == "errack":
        return [f".{i}" for i in _ids(owner, State.DISMISSED, MOST)]
    if name == "que":
        entries = owner.spool.entries
        return [[i, entries[i].due] for i in _ids(owner, State.QUE, limit)]
    if name == "run":
        return [[i, _run_status(owner, i)] for i in _ids(owner, State.RUN, limit)]
    if name == "prep" or name == "err":
        return _ids(owner, State(name), MOST)
    if name in HASHED:
        return _filtered(owner, State(name), limit, asked.get("filter"))
    raise _no_state(name)


def _no_state(name: str) -> BadInput:
    return BadInput(f"invalid or missing 'state' field ({name:.80})")


def _run_status(owner: Owner, msg_id: str) -> str:
    return str(views.status(owner, msg_id)["status"])


def _limit(asked: Mapping[str, Any]) -> int | None:
    limit = asked.get("limit", LIMIT)
    if isinstance(limit, str) and _WHOLE.fullmatch(limit):
        limit = int(limit)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise BadInput(f"limit is not a whole number: {limit!r:.40}")
    return min(limit, MOST) if limit > 0 else MOST


def _filtered(owner: Owner, state: State, limit: int | None, wanted: Any) -> list[str]:
    ids = _ids(owner, state, limit)
    if not isinstance(wanted, str) or not wanted.strip():
        return ids
    return [i for i in ids if wanted in _json(owner, i)]


def _json(owner: Owner, msg_id: str) -> str:
    """Return a message as text; nothing for one that cannot be read."""
    try:
        return owner.spool.read(msg_id).encode().decode()
    except (BadInput, NoSuchMessage):
        return ""


def listed(owner: Owner, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return messages of a state with their main fields, newest first."""
    name = str(asked.get("state"))
    if name not in COUNTED:
        raise _no_state(name)
    state = State(name)
    after = asked.get("after")
    ids = _ids(owner, state, _limit(asked), names.msg_id(after) if after else "")
    rows: list[dict[str, Any]] = []
    size = 0
    for row in (one for i in ids if (one := _row(owner, i)) is not None):
        rows.append(row)
        size += sum(len(param_text(row[p])) for p in PARAMS if p in row)
        if size > LIST_CHARACTERS:
            break
    return rows


def _row(owner: Owner, msg_id: str) -> dict[str, Any] | None:
    try:
        found = views.read(owner, msg_id)
        shown = views.status(owner, msg_id)
    except (BadInput, NoSuchMessage):
        return None
    entry = owner.spool.entries.get(msg_id)
    row = {
        "msg_id": msg_id,
        "due": entry.due if entry else found.due,
        "count": entry.count if entry else found.count,
        "attempt": entry.attempt if entry else _attempts(owner, found),
        "status": shown["status"],
        "state": shown["state"],
    }
    together = owner.batch_of(msg_id)
    if together is not None:
        row.update(views.batch(together))
    if entry is not None and entry.state is State.QUE:
        row["waiting"] = views.why_waiting(owner, msg_id)
    if (txn := owner.spool.txns.of(msg_id)) is not None:
        row["txn"] = txn.txn_id
    return {**row, **{p: found.params[p] for p in PARAMS if p in found.params}}


def _attempts(owner: Owner, found: Message) -> int:
    """Return the starts of a message that has ended: a start alone does not rewrite
    its file `msg`."""
    return int(owner.spool.status(found.msg_id).get("attempt", found.attempt))
