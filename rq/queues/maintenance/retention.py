"""Removes messages that have ended: each hour by the config, or on command.

What is old is listed in a thread, a batch at a time; the owner's loop looks again,
removes a batch by one line, and waits for the folders before it goes on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import Any

from rq.errors import BadInput
from rq.journal import sealing
from rq.logs import fields
from rq.queues.owner.owner import Owner
from rq.spool import PREP_SECONDS, Spool, checkpoint, expiry, index
from rq.spool.expiry import Limits, Owned, Search
from rq.states import State

DAY = 86400.0
BATCH = 1000  # messages that one line of the journal removes
LAG = 2000  # folders still to be removed, beyond which the next batch waits
STATES = (State.DONE, State.RELAYED, State.DISMISSED)
_PAUSE = 0.05

log = logging.getLogger(__name__)


# ---- as the config says


async def apply(owner: Owner) -> int:
    """Remove all that has outlived the queue's retention; return how many messages."""
    removed = 0
    for state in STATES:
        removed += await _apply(owner, state)
    if removed:
        log.info("retention: %s", fields(removed=removed))
    return removed


async def _apply(owner: Owner, state: State) -> int:
    """Walk over a state once; the limits are those of now in each batch."""
    search = Search(owner.weights, state)
    removed, more = 0, True
    while more and not owner.admission.stopping and not owner.admission.disk_failed:
        limits = _limits(owner, state, owner.spool.clock())
        if limits == Limits():
            break
        gone, more = await _expire(owner, search, limits, BATCH)
        removed += gone
    return removed


def _limits(owner: Owner, state: State, now: float) -> Limits:
    """Return the limits of a state as of `now`. What had ended before the queue was
    adopted counts as if it had ended then."""
    kept = owner.config.retention.get(str(state), {})
    before = now - kept["days"] * DAY if "days" in kept else None
    if before is not None and before < owner.spool.adopted:
        before = None
    return Limits(
        before=before,
        keep=int(kept["count"]) if "count" in kept else None,
        size=int(kept["bytes"]) if "bytes" in kept else None,
    )


def removed_at(owner: Owner, msg_id: str, state: State) -> float | None:
    """Return when a message will be removed by its age, in epoch seconds."""
    kept = owner.config.retention.get(str(state), {})
    try:
        if (txn := owner.spool.txns.of(msg_id)) is not None:
            return txn.ends
        if state is State.PREP:
            return prepared(owner.spool, msg_id) + PREP_SECONDS
        if state not in STATES or "days" not in kept:
            return None
        ended = expiry.ended(owner.spool.queue, state, msg_id)
        return max(ended, owner.spool.adopted) + kept["days"] * DAY
    except OSError:
        return None  # its folder is being moved


def prepared(spool: Spool, msg_id: str) -> float:
    """Return since when a message is in prep, in epoch seconds: one of another RQ since
    the queue was adopted. FileNotFoundError when its folder is gone."""
    began = spool.queue.message(State.PREP, msg_id).stat().st_mtime
    return max(began, spool.adopted)


async def forget_history(owner: Owner) -> int | None:
    """Remove sealed segments that are too old; return the event from which a newer
    index would let more of them go, None when there is none."""
    kept = owner.config.retention.get("history", {})
    if not kept:
        return None
    # Without an index these lines alone tell which keys and decisions are known.
    indexed = index.seq_of(owner.queue, owner.spool.journal_id) or 0
    point = checkpoint.read(owner.queue)
    done = point.seq if point else 0
    forget = functools.partial(
        sealing.forget,
        owner.queue.journal_dir,
        owner.spool.journal_id,
        min(done, indexed),
        before=owner.spool.clock() - kept["days"] * DAY if "days" in kept else None,
        size=int(kept["bytes"]) if "bytes" in kept else None,
    )
    removed, held = await owner.loop.run_in_executor(owner.pools.looks, forget)
    if removed:
        log.info("retention: %s", fields(removed_segments=removed))
    return done if held and indexed < done else None


# ---- a batch


async def keep_pace(owner: Owner) -> None:
    """Wait until few enough folders are still to be moved."""
    spool = owner.spool
    while spool.lag > LAG and not spool.stuck and not owner.admission.stopping:
        await asyncio.sleep(_PAUSE)


async def _expire(
    owner: Owner, search: Search, limits: Limits, most: int
) -> tuple[int, bool]:
    """Remove the next batch of what has outlived `limits`; return how many messages, and
    whether there are more."""
    spool, state = owner.spool, search.state
    await keep_pace(owner)
    owned = Owned(
        total=spool.counts.of(state),
        held=frozenset(entry.msg_id for entry in spool.owed.values()),
        going=frozenset(i for i, entry in spool.moving().items() if entry.at is state),
    )
    batch = await owner.loop.run_in_executor(
        owner.pools.looks, search.batch, limits, owned, most
    )
    if owner.admission.stopping or owner.admission.disk_failed:
        return 0, False
    gone = spool.expire(state, batch.ids)
    spool.remove_empty(batch.empty)
    owner.wake()
    await owner.committed()
    return len(gone), batch.more


async def answer(owner: Owner, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the command `expire`."""
    if "state" not in wanted:
        removed = await apply(owner)
        await forget_history(owner)
        return {"expired": removed, "more": False}
    state = _state(wanted["state"])
    size = _whole(wanted, "bytes")
    limits = Limits(
        before=_moment(wanted.get("before")), keep=_whole(wanted, "keep"), size=size
    )
    limit = _whole(wanted, "limit")
    most = BATCH if limit is None else min(limit, BATCH)
    gone, more = await _expire(owner, Search(owner.weights, state), limits, most)
    return {"expired": gone, "more": more}


def _state(name: Any) -> State:
    if name in STATES:
        return State(name)
    raise BadInput(f"state is {name!r:.40}, not done, relayed or dismissed")


def _moment(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise BadInput(f"before is {value!r:.40}, not seconds since the epoch")


def _whole(wanted: Mapping[str, Any], name: str) -> int | None:
    value = wanted.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise BadInput(f"{name} is {value!r:.40}, not a whole number from 0 up")
