"""Removes messages that have ended: each hour by the config, or on command.

What is old is listed in a thread, a batch at a time; the owner's loop looks again,
removes a batch by one line, and waits for the folders before it goes on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import cast

from rq.config.settings import QueueConfig
from rq.errors import BadInput
from rq.journal import sealing
from rq.logs import fields
from rq.message.fields import JsonObject
from rq.queues import arguments
from rq.queues.concurrency import Wakeup
from rq.queues.maintenance.counters import Counters
from rq.queues.owner.admission import Admission
from rq.queues.owner.settings import Settings
from rq.replies import Expired
from rq.spool import PREP_SECONDS, Spool, checkpoint, expiry, index
from rq.spool.disk_usage import DiskUsage
from rq.spool.expiry import Limits, Owned, Search
from rq.words.states import State

DAY = 86400.0
BATCH = 1000  # messages that one line of the journal removes
LAG = 2000  # folders still to be removed, beyond which the next batch waits
STATES = (State.DONE, State.RELAYED, State.DISMISSED)
_PAUSE = 0.05

log = logging.getLogger(__name__)


class Retention:
    """Removes messages of one queue, and history, as its config says or a person asks."""

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        admission: Admission,
        wakeup: Wakeup,
        counters: Counters,
        looks: Executor,
    ) -> None:
        """`looks`: the threads that list and read folders."""
        self._settings = settings
        self._spool = spool
        self._admission = admission
        self._wakeup = wakeup
        self._counters = counters
        self._looks = looks
        self.weights = DiskUsage(spool.queue)

    # ---- as the config says

    async def apply(self) -> int:
        """Remove all that has outlived the queue's retention; return how many messages."""
        # With too high a count more would go than what is beyond the number to be kept.
        await self._counters.correct()
        removed = 0
        for state in STATES:
            removed += await self._apply(state)
        if removed:
            log.info("retention: %s", fields(removed=removed))
        return removed

    async def _apply(self, state: State) -> int:
        """Walk over a state once; the limits are those of now in each batch."""
        search = Search(self.weights, state)
        removed, more = 0, True
        while more and not self._ends:
            limits = self._limits(state, self._spool.clock())
            if limits == Limits():
                break
            gone, more = await self._expire(search, limits, BATCH)
            removed += gone
        return removed

    def _limits(self, state: State, now: float) -> Limits:
        """Return the limits of a state as of `now`. What had ended before the queue was
        adopted counts as if it had ended then."""
        kept = kept_by(self._settings.queue).get(str(state), {})
        before = now - kept["days"] * DAY if "days" in kept else None
        if before is not None and before < self._spool.adopted:
            before = None
        return Limits(
            before=before,
            keep=int(kept["count"]) if "count" in kept else None,
            size=int(kept["bytes"]) if "bytes" in kept else None,
        )

    async def forget_history(self) -> int | None:
        """Remove sealed segments that are too old; return the event from which a newer
        index would make more of them removable, None when there is none."""
        kept = self._settings.queue.retention.get("history", {})
        if not kept:
            return None
        queue, journal_id = self._spool.queue, self._spool.journal_id
        # Without an index these lines alone tell which keys and decisions are known.
        indexed = index.seq_of(queue, journal_id) or 0
        point = checkpoint.read(queue)
        done = point.seq if point else 0
        forget = functools.partial(
            sealing.forget,
            queue.journal_dir,
            journal_id,
            min(done, indexed),
            before=self._spool.clock() - kept["days"] * DAY if "days" in kept else None,
            size=int(kept["bytes"]) if "bytes" in kept else None,
        )
        run = asyncio.get_running_loop().run_in_executor
        removed, held = await run(self._looks, forget)
        if removed:
            log.info("retention: %s", fields(removed_segments=removed))
        return done if held and indexed < done else None

    # ---- a batch

    @property
    def _ends(self) -> bool:
        """Whether nothing more may be removed: the queue ends, or its disk has failed."""
        return bool(self._admission.stopping or self._admission.disk_failed)

    async def _expire(
        self, search: Search, limits: Limits, most: int
    ) -> tuple[int, bool]:
        """Remove the next batch of what has outlived `limits`; return how many messages,
        and whether there are more."""
        spool, state = self._spool, search.state
        await keep_pace(spool, self._admission)
        moving = spool.moving().items()
        owned = Owned(
            total=spool.counts.of(state),
            held=frozenset(entry.msg_id for entry in spool.owed.values()),
            going=frozenset(i for i, entry in moving if entry.at is state),
        )
        run = asyncio.get_running_loop().run_in_executor
        batch = await run(self._looks, search.batch, limits, owned, most)
        if self._ends:
            return 0, False
        gone = spool.expire(state, batch.ids)
        spool.remove_empty(batch.empty)
        await self._wakeup.committed()
        return len(gone), batch.more

    # ---- as a person asks

    async def answer(self, wanted: JsonObject) -> Expired:
        """Answer the command `expire`."""
        if "state" not in wanted:
            removed = await self.apply()
            await self.forget_history()
            return {"expired": removed, "more": False}
        state = _state(wanted["state"])
        size = arguments.whole(wanted, "bytes", None)
        limits = Limits(
            before=_moment(wanted.get("before")),
            keep=arguments.whole(wanted, "keep", None),
            size=size,
        )
        most = min(arguments.whole(wanted, "limit", BATCH), BATCH)
        if limits.keep is not None:
            await self._counters.correct([state])
        gone, more = await self._expire(Search(self.weights, state), limits, most)
        return {"expired": gone, "more": more}


async def keep_pace(spool: Spool, admission: Admission) -> None:
    """Wait until few enough folders are still to be moved."""
    while spool.lag > LAG and not spool.stuck and not admission.stopping:
        await asyncio.sleep(_PAUSE)


# ---- how long messages stay


def kept_by(queue: QueueConfig) -> Mapping[str, Mapping[str, float]]:
    """Return the retention of a queue, by state: messages of which tables were made stay
    as long as `keep_sources` says, for a day can be made again from these alone."""
    least = float(cast(float, queue.spark.get("keep_sources", 0.0))) / DAY
    kept = dict(queue.retention)
    for state in (str(State.DONE), str(State.RELAYED)):
        if kept.get(state, {}).get("days", least) < least:
            kept[state] = {**kept[state], "days": least}
    return kept


def removed_at(
    kept: Mapping[str, Mapping[str, float]], spool: Spool, msg_id: str, state: State
) -> float | None:
    """Return when a message will be removed by its age, in epoch seconds. `kept`: the
    retention of its queue, by state."""
    days = kept.get(str(state), {}).get("days")
    try:
        if (txn := spool.txns.of(msg_id)) is not None:
            return txn.ends
        if state is State.PREP:
            return prepared(spool, msg_id) + PREP_SECONDS
        if state not in STATES or days is None:
            return None
        ended = expiry.ended(spool.queue, state, msg_id)
        return max(ended, spool.adopted) + days * DAY
    except OSError:
        return None  # its folder is being moved


def prepared(spool: Spool, msg_id: str) -> float:
    """Return since when a message is in prep, in epoch seconds: one of another RQ since
    the queue was adopted. FileNotFoundError when its folder is gone."""
    began = spool.queue.message(State.PREP, msg_id).stat().st_mtime
    return max(began, spool.adopted)


# ---- what was asked


def _state(name: object) -> State:
    if isinstance(name, str) and name in STATES:
        return State(name)
    raise BadInput(f"state is {name!r:.40}, not done, relayed or dismissed")


def _moment(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise BadInput(f"before is {value!r:.40}, not seconds since the epoch")
