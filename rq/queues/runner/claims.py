"""Claims due messages, and reserves a slot or a long-lived worker for each."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable

from rq.config.checks import PERSISTENT
from rq.errors import BadMessage, NoSuchMessage, TooLate, Unread
from rq.logs import fields
from rq.message.message import Message
from rq.queues.attempts.attempt import Attempt, Claim, PoolWorker
from rq.queues.owner.owner import Owner
from rq.queues.runner import abort
from rq.queues.runner.parts import Parts
from rq.queues.runner.pool import Pool
from rq.scripts.slots import Slot
from rq.spool import lost_attempts

log = logging.getLogger(__name__)


class Claims:
    """The messages of a queue that were claimed, and wait for their start."""

    def __init__(self, owner: Owner, parts: Parts, pool: Pool) -> None:
        self._owner = owner
        self._parts = parts
        self._file = parts.file
        self._pool = pool
        self._waiting: list[Attempt] = []

    def claim_due(self) -> float | None:
        """Claim all that is due and has a slot; return when to look again."""
        owner = self._owner
        now = owner.spool.clock()
        while owner.slots_free > 0 and owner.admission.may_start:
            not_before = self._file.not_before(now, self._pool.free > 0)
            if not_before is not None:
                return not_before
            if self._persistent and not self._pool.has_free():
                return self._pool.want(now)
            try:
                msg_id, later = owner.backlog.next_due(now)
            except Unread as error:
                self._file.lacks(error, now)
                continue
            if msg_id is None:
                return self._nothing_due(later)
            self._claim(msg_id, now)
            if owner.spool.group_full:
                return now
        return None

    def _nothing_due(self, later: float | None) -> float | None:
        if later is None:
            self._file.is_back()  # no message waits for it: no error to show
        return later

    @property
    def _persistent(self) -> bool:
        return self._owner.config.worker == PERSISTENT

    def _claim(self, msg_id: str, now: float) -> None:
        owner = self._owner
        entry = owner.spool.entry(msg_id)
        group = entry.key
        seq, wait_us = entry.last_told, entry.waited_us(now)
        try:
            key = owner.backlog.exclusion_key(msg_id)
            worker = self._pool.take() if self._persistent else None
            slot = worker.slot if worker else self._parts.slots.take()
        except (Unread, OSError) as error:
            owner.backlog.put_back(msg_id)
            self._file.lacks(error, now)
            return
        message = self._fire(msg_id, slot, worker, now)
        if message is None:
            return
        owner.backlog.gather_riders(msg_id, group)
        owner.backlog.started(key, msg_id, now)
        attempt = Attempt(
            Claim(
                message=message,
                slot=slot,
                worker=worker,
                key=key,
                wait_us=wait_us,
                seq=seq,
            )
        )
        if worker is None:
            attempt.stamp = owner.spool.claimed_stamp
        owner.attempts.claim(attempt)
        self._waiting.append(attempt)

    def _fire(
        self,
        msg_id: str,
        slot: Slot,
        worker: PoolWorker | None,
        now: float,
    ) -> Message | None:
        """Claim a message; None when it cannot be claimed: it waits again, or is in err."""
        claim = functools.partial(self._owner.spool.claim, msg_id, slot.number)
        try:
            message = take(self._owner, msg_id, claim)
        except (Unread, OSError, MemoryError) as error:
            self.release(slot, worker)
            self._file.lacks(error, now)
            return None
        if message is None:
            self.release(slot, worker)
        return message

    def release(self, slot: Slot, worker: PoolWorker | None) -> None:
        """Take back what was reserved for an attempt that did not begin."""
        if worker is not None:
            self._pool.release(worker)
        else:
            os.close(slot.fd)
            self._parts.slots.free(slot.number)

    def any_after(self, seq: int) -> bool:
        """Whether a message is claimed whose acceptance is a later event than `seq`."""
        return any(attempt.claim.seq > seq for attempt in self._waiting)

    def take(self, seq: int) -> list[Attempt]:
        """Return the attempts whose messages were accepted no later than event `seq`;
        they are to be started."""
        ready = [attempt for attempt in self._waiting if attempt.claim.seq <= seq]
        if ready:
            later = [attempt for attempt in self._waiting if attempt.claim.seq > seq]
            self._waiting = later
        return ready


def take(owner: Owner, msg_id: str, claim: Callable[[], Message]) -> Message | None:
    """Claim a message that is due; None when it cannot be used: it is in err.

    Unread, OSError or MemoryError: it cannot be read for now, and waits again.
    """
    owner.backlog.remove(msg_id)
    try:
        return claim()
    except (Unread, OSError, MemoryError):
        owner.backlog.put(msg_id)
        raise
    except TooLate as error:
        fail_late(owner, msg_id, error)
    except (BadMessage, NoSuchMessage) as error:
        lost_attempts.fail_malformed(owner.spool, msg_id, str(error))
    except Exception as error:
        log.exception("a message could not be claimed: %s", fields(msg_id=msg_id))
        lost_attempts.fail_malformed(owner.spool, msg_id, abort.unforeseen(error))
    return None


def fail_late(owner: Owner, msg_id: str, error: TooLate) -> None:
    """End a message, which has left the schedule, past its deadline."""
    lost_attempts.fail_late(owner.spool, msg_id, str(error))
    owner.backlog.release_riders(msg_id)
    owner.count("err")
    owner.wake()
