"""What the owner shows of its messages and of itself; nothing here changes anything."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rq import names
from rq.causes import duration, story
from rq.config import PERSISTENT, Admin
from rq.errors import BadInput, BadMessage, NoSuchMessage
from rq.layout import folder
from rq.message import PARAMS, Message
from rq.queues import delivery, retention
from rq.queues.batch import Batch
from rq.queues.owner import Owner
from rq.queues.persistent import Phase
from rq.queues.resident import Resident
from rq.spool import folders
from rq.spool.entry import COUNTED
from rq.states import HASHED, State

LIMIT = 20
MOST = 10_000
_PUBLIC = {State.DISMISSED: "err"}


def public_state(state: State) -> str:
    """Return a state as the ancestor's clients know it."""
    return _PUBLIC.get(state, str(state))


# ---- one message


def status(owner: Owner, msg_id: str) -> dict[str, Any]:
    """Return path, state and status of a message."""
    state = owner.spool.state_of(msg_id)
    text = _text(owner, msg_id, state)
    shown = public_state(state)
    return {
        "path": _path(owner, msg_id, state),
        "status": f"{shown} - {text}" if text else shown,
        "state": shown,
    }


def _path(owner: Owner, msg_id: str, state: State) -> str:
    place = owner.spool.place(msg_id) or folder(state, msg_id)
    return f"queue/{owner.name}/{place}"


def _text(owner: Owner, msg_id: str, state: State) -> str:
    worker = owner.workers.get(msg_id)
    if worker is not None:
        return worker.text
    if state is State.PREP:
        return ""
    return str(owner.spool.status(msg_id).get("job_status") or "")


def message(owner: Owner, msg_id: str) -> dict[str, Any]:
    """Return all that is known of a message."""
    found = _read(owner, msg_id)
    shown = status(owner, msg_id)
    state = owner.spool.state_of(msg_id)
    entry = owner.spool.entries.get(msg_id)
    result = owner.spool.status(msg_id)
    worker = owner.workers.get(msg_id)
    if worker is not None:
        result = {"job_status": worker.text, "attempt": worker.message.attempt}
        result["pid"], result["started"] = worker.pid, worker.began_at
    fields: dict[str, Any] = {**found.to_json(), **shown, "result": result}
    if entry is not None:
        fields.update(count=entry.count, attempt=entry.attempt, due=entry.due)
    elif "attempt" in result:
        fields["attempt"] = result["attempt"]  # a start alone does not rewrite msg
    if state is State.RUN:
        fields["phase"] = worker.phase if worker else "starting"
    if state is State.DISMISSED:
        fields["acknowledged"] = True
    fields["_attachments"] = _attachments(owner, fields)
    if not fields["_attachments"]:
        del fields["_attachments"]
    fields["story"] = _story(owner, msg_id, state, fields)
    if (removed_at := retention.removed_at(owner, msg_id, state)) is not None:
        fields["removed_at"] = removed_at
    return fields


def _read(owner: Owner, msg_id: str) -> Message:
    """Return a message; of one in err that cannot be read, what is known all the same:
    it must not hide, and its story says what is wrong with it."""
    try:
        return owner.spool.read(msg_id)
    except BadMessage as error:
        if owner.spool.find(msg_id) not in (State.ERR, State.DISMISSED):
            raise
        return Message(
            msg_id=msg_id,
            dest=owner.name,
            due=names.created(msg_id),
            extra={"unreadable": str(error)},
        )


def _attachments(owner: Owner, fields: Mapping[str, Any]) -> dict[str, Any]:
    base = f"{owner.root.path}/{fields['path']}/attach"
    return {
        name: {**one, "path": f"{base}/{name}"}
        for name, one in fields.get("attachments", {}).items()
    }


def _story(
    owner: Owner, msg_id: str, state: State, fields: Mapping[str, Any]
) -> dict[str, str]:
    facts = {
        "attempt": fields.get("attempt", 0),
        "max_count": fields["max_count"],
        **fields["result"],
        "count": fields["count"],
        "id": msg_id,
    }
    if state is State.QUE:
        facts["waiting"] = why_waiting(owner, msg_id)
    return story(state, facts).to_json()


def why_waiting(owner: Owner, msg_id: str) -> str:
    """Return in a sentence why a message in que has not started."""
    entry = owner.spool.entries[msg_id]
    if entry.rider_of is not None:
        return f"It rides with {entry.rider_of}, which equals it and runs."
    if owner.admin is not Admin.UP:
        return f"The queue is {owner.admin}."
    if owner.oper is not None:
        return f"The script cannot be started: {owner.oper}."
    away = entry.due - owner.spool.clock()
    if away > 0:
        when = datetime.fromtimestamp(entry.due, UTC)
        return f"It is due in {duration(away)} ({when:%Y-%m-%d %H:%M:%S} UTC)."
    key = owner.exclusion_key(msg_id)
    if key is not None and key in owner.busy_keys:
        return f"{owner.busy_keys[key]} runs with equal blocking_params."
    if owner.config.num_workers == 0:
        return "num_workers is 0, so nothing runs."
    return _why_next(owner, msg_id)


def _why_next(owner: Owner, msg_id: str) -> str:
    if owner.slots_free <= 0:
        return f"All {owner.config.num_workers} slots are taken (num_workers)."
    if msg_id in owner.gathering:
        return _why_gathering(owner, msg_id)
    return "No worker is ready yet." if _lacks_worker(owner) else "It is next."


def _why_gathering(owner: Owner, msg_id: str) -> str:
    there, quota, starts = owner.gathering.about(msg_id)
    away = starts - owner.spool.clock()
    if there >= quota or away <= 0:
        return "Its batch is next."
    return (
        f"Its batch starts when {quota} messages are there (now {there}), or in "
        f"{duration(away)}."
    )


def _lacks_worker(owner: Owner) -> bool:
    free = any(one.phase is Phase.FREE for one in owner.residents)
    return owner.config.worker == PERSISTENT and not free


# ---- lists


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
    return str(status(owner, msg_id)["status"])


def _limit(asked: Mapping[str, Any]) -> int | None:
    limit = asked.get("limit", LIMIT)
    if isinstance(limit, str) and limit.lstrip("-").isdigit():
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
    return [one for i in ids if (one := _row(owner, i)) is not None]


def _row(owner: Owner, msg_id: str) -> dict[str, Any] | None:
    try:
        found = _read(owner, msg_id)
        shown = status(owner, msg_id)
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
    return {**row, **{p: found.params[p] for p in PARAMS if p in found.params}}


def _attempts(owner: Owner, found: Message) -> int:
    """Return the starts of a message that has ended: a start alone does not rewrite
    its file `msg`."""
    return int(owner.spool.status(found.msg_id).get("attempt", found.attempt))


# ---- the queue


def counts(owner: Owner) -> dict[str, int]:
    """Return how many messages are in each of the six states."""
    kept = owner.spool.counts
    shown_states = (
        State.PREP,
        State.QUE,
        State.RUN,
        State.DONE,
        State.RELAYED,
        State.ERR,
    )
    shown = {str(state): kept.of(state) for state in shown_states}
    shown["que"] -= owner.riding
    return shown


def detail(owner: Owner) -> dict[str, Any]:
    """Return what an operator wants to know of the queue."""
    spool = owner.spool
    closed = owner.closed()
    first = owner.first_due()
    return {
        "name": owner.name,
        "pid": os.getpid(),
        "uptime": int(time.monotonic() - owner.began),
        "status": owner.status,
        "admin": str(owner.admin),
        "oper": "SCRIPTERROR" if owner.oper else "UP",
        "reason": owner.oper or owner.config_error,
        "counts": {**counts(owner), "errack": spool.counts.of(State.DISMISSED)},
        "accepting": closed is None,
        "closed_reason": closed,
        "lag": spool.lag,
        "lag_bytes": spool.lag_bytes,
        "stuck": spool.stuck,
        "left_at_door": owner.left_at_door,
        "num_workers": owner.config.num_workers,
        "running": [
            _running(owner, i) for i, one in owner.workers.items() if not one.batch
        ],
        "batches": [_batch(one) for one in owner.batches],
        "workers": [_resident(one) for one in owner.residents],
        "next_due": first,
        "oldest_due_age": None if first is None else max(0.0, spool.clock() - first),
        "series": owner.rates.to_json(time.monotonic(), spool.counts.of(State.QUE)),
        "owed": len(spool.owed),
        "in_doubt": len(delivery.doubtful(owner)),
        "journal_id": spool.journal.journal_id,
        "seq": spool.journal.position.seq,
        "checkpoint_seq": owner.checkpoint_seq,
    }


def _resident(one: Resident) -> dict[str, Any]:
    return {
        "pid": one.pid,
        "phase": one.phase,
        "messages": one.messages,
        "since": one.began_at,
    }


def _batch(one: Batch) -> dict[str, Any]:
    return {
        "batch_id": one.batch_id,
        "pid": one.script.pid if one.script else None,
        "messages": len(one.claims),
        "left": one.left,
        "since": one.began_at,
        "status": one.said.text,
    }


def _running(owner: Owner, msg_id: str) -> dict[str, Any]:
    worker = owner.workers[msg_id]
    return {
        "msg_id": msg_id,
        "pid": worker.pid,
        "phase": worker.phase,
        "since": worker.began_at,
        "status": worker.text,
    }
