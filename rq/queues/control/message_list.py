"""Lists of messages, as their owner shows them; nothing here changes anything."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Sequence
from itertools import islice, takewhile
from typing import cast

import orjson

from rq import names
from rq.config import secrets
from rq.errors import BadInput, NoSuchMessage, NotPermitted
from rq.layout import QueueDir
from rq.message import filter as filters
from rq.message import next_attempt
from rq.message.fields import JsonObject, param_text
from rq.message.filter import Filter
from rq.message.table import PARAMS
from rq.proc.slices import in_slices
from rq.queues import arguments
from rq.queues.attempts.attempt import starts_of_ended
from rq.queues.bulk import selection
from rq.queues.control import message_view, waiting_view
from rq.queues.owner.owner import Owner
from rq.replies import MessageRow, Result, of_end
from rq.spool import folders
from rq.spool.entry import Entry
from rq.words.states import COUNTED, HASHED, LIVE, State, public

LIMIT = 20
MOST = 10_000
BELOW_ADMIN = "below_admin"  # of a request: its asker asks for one who is no admin
NEXT = "next"  # an order: what runs next comes first
MOST_NEXT = 1000  # that are listed so, in one go
LIST_BYTES = 4 * 1024 * 1024  # of an answer, which then ends early
QUICK = 2000  # live messages that are looked at in one go


def newest_waiting(owner: Owner) -> str | None:
    """Return the message that came into que last; None when none waits."""
    if not owner.spool.counts.of(State.QUE):
        return None
    return next((i for i in owner.spool.newest_first() if _waits(owner, i)), None)


def _waits(owner: Owner, msg_id: str) -> bool:
    entry = owner.spool.entry_of(msg_id)
    return entry is not None and entry.state is State.QUE and entry.rider_of is None


async def in_err(owner: Owner) -> list[str]:
    """Return the messages in err that were not acknowledged."""
    return await _ids(owner, State.ERR, None)


async def _ids(
    owner: Owner, state: State, limit: int | None, after: str = ""
) -> list[str]:
    """Return ids in a state, newest first, also those whose folder is not there yet.

    `after`: only those older than that id. Of what has ended no more is looked at than
    is given, however much there is and however far the folders lag. Who asks has to look
    again: some may have moved on by now.
    """
    if state in (State.QUE, State.PREP, State.RUN):
        return await _live(owner, state, limit, after)
    spool = owner.spool
    coming: list[str] = []

    def look(pair: tuple[str, Entry]) -> None:
        msg_id, entry = pair
        if entry.state is state and (not after or msg_id < after):
            coming.append(msg_id)

    unsettled = spool.moving()
    await in_slices(unsettled.items(), look)
    there = await owner.loop.run_in_executor(
        owner.pools.looks, _listed, spool.queue, state, limit, after, unsettled
    )
    return sorted({*coming, *there}, reverse=True)[:limit]


def _listed(
    queue: QueueDir, state: State, limit: int | None, after: str, but: Container[str]
) -> list[str]:
    """Return the newest messages whose folder lies in a state; for a thread."""
    there = folders.newest_first(queue, state, after)
    return list(islice((i for i in there if i not in but), limit))


async def _live(owner: Owner, state: State, limit: int | None, after: str) -> list[str]:
    spool = owner.spool
    most = spool.live_count if limit is None else limit
    ids: list[str] = []

    def look(msg_id: str) -> None:
        entry = spool.entry_of(msg_id)
        if entry is None or entry.state is not state or (after and msg_id >= after):
            return
        if state is not State.QUE or entry.rider_of is None:
            ids.append(msg_id)

    for msg_id in islice(spool.newest_first(), QUICK):
        look(msg_id)
        if len(ids) >= most:
            return ids
    if spool.live_count > QUICK:
        ids.clear()
        every = list(spool.newest_first())
        await in_slices(takewhile(lambda _: len(ids) < most, every), look)
    return ids


async def messages(
    owner: Owner, request: JsonObject, *, sees_all: bool
) -> Sequence[object]:
    """Return what the ancestor's command `messages` does; `sees_all`: `filter` finds in a
    message also what only admins are shown."""
    name = str(request.get("state"))
    limit = arguments.limit(request, LIMIT, MOST)
    if name == "errack":
        return [f".{i}" for i in await _ids(owner, State.DISMISSED, MOST)]
    if name == "que":
        ids = await _ids(owner, State.QUE, limit)
        entries = ((msg_id, owner.spool.entry_of(msg_id)) for msg_id in ids)
        return [[msg_id, entry.due] for msg_id, entry in entries if entry is not None]
    if name == "run":
        return await _statuses(owner, await _ids(owner, State.RUN, limit))
    if name == "prep" or name == "err":
        return await _ids(owner, State(name), MOST)
    if name in HASHED:
        ids = await _ids(owner, State(name), limit)
        wanted = request.get("filter")
        if not isinstance(wanted, str) or not wanted.strip():
            return ids
        return await _holding(owner, ids, wanted, sees_all=sees_all)
    raise _no_state(name)


def _no_state(name: str) -> BadInput:
    return BadInput(f"invalid or missing 'state' field ({name:.80})")


async def _statuses(owner: Owner, ids: list[str]) -> list[list[str]]:
    """Return messages with their status, without those that are gone by now."""
    statuses: list[list[str]] = []

    def look(msg_id: str) -> None:
        with contextlib.suppress(NoSuchMessage):
            statuses.append([msg_id, message_view.status(owner, msg_id)["status"]])

    await in_slices(ids, look)
    return statuses


async def _holding(
    owner: Owner, ids: list[str], wanted: str, *, sees_all: bool
) -> list[str]:
    """Return the messages that hold a text. A secret must not be found letter by letter
    by those who are not shown it."""
    matching: list[str] = []

    def look(msg_id: str) -> None:
        text = _json(owner, msg_id)
        if text and not sees_all:
            fields = secrets.below_admin(orjson.loads(text), owner.name)
            text = orjson.dumps(fields).decode()
        if wanted in text:
            matching.append(msg_id)

    await in_slices(ids, look)
    return matching


def _json(owner: Owner, msg_id: str) -> str:
    """Return a message as text; nothing for one that cannot be read."""
    try:
        return owner.spool.read(msg_id).encode().decode()
    except (BadInput, NoSuchMessage):
        return ""


async def listed(
    owner: Owner, request: JsonObject, *, sees_all: bool
) -> tuple[list[MessageRow], bool]:
    """Return messages of a state with their main fields, newest first, and whether the
    answer ends early: with as many bytes as one may have. `sees_all`: as in `messages`."""
    name = str(request.get("state"))
    if name not in COUNTED:
        raise _no_state(name)
    state = State(name)
    after = request.get("after")
    before = names.msg_id(after) if after else ""
    limit = arguments.limit(request, LIMIT, MOST)
    wanted = _filter(owner, request, state)
    if wanted is not None and wanted.key is not None and not sees_all:
        raise NotPermitted("a list of messages by their key is for admins")
    in_turn = request.get("order") == NEXT and state is State.QUE and not before
    if wanted is not None:
        ids = await _matching(owner, wanted, limit, before)
    elif in_turn and limit is not None and limit <= MOST_NEXT:
        ids = owner.backlog.in_order(limit)
    else:
        ids = await _ids(owner, state, limit, before)
    rows: list[MessageRow] = []
    size = 0

    def look(msg_id: str) -> None:
        nonlocal size
        row = _row(owner, msg_id)
        if row is None or row["state"] != public(state):
            return
        if sees_all or wanted is None or _shows(owner, row, wanted):
            rows.append(row)
            size += len(orjson.dumps(row))

    await in_slices(takewhile(lambda _: size < LIST_BYTES, ids), look)
    return rows, size >= LIST_BYTES


def _filter(owner: Owner, request: JsonObject, state: State) -> Filter | None:
    """Return the filter that makes a list shorter: as that of `bulk`, without `state`."""
    given = request.get("filter")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadInput("a filter is a JSON object")
    return filters.from_json({**given, "state": str(state)}, owner.spool.clock())


async def _matching(
    owner: Owner, wanted: Filter, limit: int | None, after: str
) -> list[str]:
    """Return the newest messages that a filter means; `after`: only older ones.

    Of done and relayed the newest come first, so that a list ends where it is long
    enough; of other states all are looked at, in slices.
    """
    meant: list[str] = []
    async for ids in selection.chosen(owner, wanted):
        meant += (msg_id for msg_id in ids if not after or msg_id < after)
        if wanted.state in HASHED and limit is not None and len(meant) >= limit:
            break
    return sorted(meant, reverse=True)[:limit]


def _shows(owner: Owner, row: MessageRow, wanted: Filter) -> bool:
    """Whether a text that is looked for stands in what the asker is shown of a row: a
    secret must not be found letter by letter."""
    if wanted.text is None and wanted.find is None and not wanted.params:
        return True
    visible = secrets.below_admin(row, owner.name)
    if any(visible.get(name) != row.get(name) for name in wanted.params):
        return False
    if (wanted.text or "").lower() not in str(visible["status"]).lower():
        return False
    return filters.holds(wanted.find or "", _texts(visible))


def _texts(row: MessageRow) -> list[str]:
    fields = cast(JsonObject, row)
    params = (param_text(fields[name]) for name in PARAMS if name in fields)
    return [row["msg_id"], row["status"], row.get("cause", ""), *params]


def _row(owner: Owner, msg_id: str) -> MessageRow | None:
    try:
        message = message_view.read(owner, msg_id)
        result = owner.spool.status(msg_id)
        status = message_view.status(owner, msg_id, result)
    except (BadInput, NoSuchMessage):
        return None
    entry = owner.spool.entry_of(msg_id)
    row: MessageRow = {
        "msg_id": msg_id,
        "due": entry.due if entry else message.due,
        "count": entry.count if entry else message.count,
        "attempt": entry.attempt if entry else starts_of_ended(message, result),
        "status": status["status"],
        "state": status["state"],
    }
    batch = owner.attempts.batch_of(msg_id)
    if batch is not None:
        row = {**row, **message_view.batch_fields(batch)}
    if (lease := owner.leases.of(msg_id)) is not None:
        row["leased_by"] = lease.by
    if entry is not None and entry.state is State.QUE:
        why = waiting_view.why_waiting(owner, msg_id)
        row["waiting"], row["why"] = why.text, why.to_json()
        again = next_attempt.of(result, row["count"], message.max_count, row["due"])
        if again is not None:
            row["next_attempt"] = again["text"]
    if (txn := owner.spool.txns.of(msg_id)) is not None:
        row["txn"] = txn.txn_id
    times = _times(owner, msg_id, result)
    dest = secrets.dest_to_hide_by(owner.name, message.dest)
    return cast(MessageRow, {**row, **times, **dest, **message.params})


def _times(owner: Owner, msg_id: str, result: Result) -> MessageRow:
    """Return since when a message runs, or how its last attempt ended."""
    attempt, lease = owner.attempts.of(msg_id), owner.leases.of(msg_id)
    if attempt is not None:
        return {"started": attempt.work.began_at}
    if lease is not None:
        return {"started": lease.held.since}
    if owner.spool.state_of(msg_id) in LIVE:
        return {}
    return of_end(result)
