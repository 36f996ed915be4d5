"""Claims the messages of batches, and reserves a slot or a long-lived worker for each."""

from __future__ import annotations

from collections.abc import Callable

from rq.config.checks import PERSISTENT
from rq.errors import BadMessage, NoSuchMessage, TooLate, Unread
from rq.queues.attempts.attempt import Attempt, Batch, Claim
from rq.queues.owner.owner import Owner
from rq.queues.runner import claims
from rq.queues.runner.parts import Parts
from rq.queues.runner.pool import Pool
from rq.scripts.slots import Slot
from rq.spool import lost_attempts

LOOKS = 200  # due messages that are put into batches in one turn


class BatchClaims:
    """Claims batches; all messages of one in one group of the journal."""

    def __init__(
        self,
        owner: Owner,
        parts: Parts,
        pool: Pool,
        claimed: Callable[[Batch], None],
        unused: Callable[[Batch], None],
    ) -> None:
        """`claimed` is given each batch; `unused` one of which no message can be
        claimed."""
        self._owner = owner
        self._parts = parts
        self._pool = pool
        self._file = parts.file
        self._claimed = claimed
        self._unused = unused

    def claim_due(self) -> float | None:
        """Claim the batches that may start and have a slot; return when to look again."""
        owner = self._owner
        now = owner.spool.clock()
        while owner.slots_free > 0 and owner.admission.may_start:
            not_before = self._file.not_before(now, self._pool.free > 0)
            if not_before is not None:
                return not_before
            later, more = self._gather(now)
            ids, starts = owner.backlog.gathering.next_batch(now)
            lacks, again = self._lacks_worker(bool(ids) or starts is not None, now)
            if ids and lacks:
                return again
            if ids:
                self._claim(ids, now)
            elif more:
                return now
            else:
                ahead = (later, starts, again)
                moments = [moment for moment in ahead if moment is not None]
                if not moments:
                    self._file.is_back()  # no message waits for it: no error to show
                return min(moments, default=None)
            if owner.spool.group_full:
                return now
        return None

    def _lacks_worker(self, wanted: bool, now: float) -> tuple[bool, float | None]:
        """Return whether no long-lived worker is free where one must be, and when to look
        again; one is started as soon as messages gather, to be ready for them."""
        if not self._is_persistent or self._pool.has_free():
            return False, None
        return True, self._pool.grow(now) if wanted else None

    @property
    def _is_persistent(self) -> bool:
        return self._owner.config.worker == PERSISTENT

    def _gather(self, now: float) -> tuple[float | None, bool]:
        """Put due messages into batches; return when the next is due, and whether more are
        due now."""
        for _ in range(LOOKS):
            msg_id, later = self._owner.backlog.next_of_batches(now)
            if msg_id is None:
                return later, False
            try:
                self._owner.backlog.gather(msg_id)
            except Unread as error:
                self._owner.backlog.put_back(msg_id)
                self._file.lacks(error, now)
                return self._file.not_before(now, False), False
        return None, True

    def _claim(self, ids: list[str], now: float) -> None:
        try:
            worker = self._pool.take() if self._is_persistent else None
            slot = worker.slot if worker else self._parts.slots.take()
        except OSError as error:
            self._file.lacks(error, now)
            return
        # The attempt is part of the id: the directory of the last batch with the same
        # first message may still be there.
        batch_id = f"{ids[0]}.{self._owner.spool.entry(ids[0]).attempt + 1}"
        attempts = [
            attempt
            for msg_id in ids
            if (attempt := self._claim_one(msg_id, batch_id, slot, now)) is not None
        ]
        batch = Batch(batch_id, attempts, slot, worker)
        if not attempts:
            self._unused(batch)
            return
        self._owner.attempts.add_batch(batch)
        self._claimed(batch)

    def _claim_one(
        self, msg_id: str, batch_id: str, slot: Slot, now: float
    ) -> Attempt | None:
        owner = self._owner
        entry = owner.spool.entry(msg_id)
        seq, wait_us = entry.last_told, entry.waited_us(now)
        owner.backlog.remove(msg_id)
        try:
            message = owner.spool.claim(msg_id, slot.number, batch=batch_id)
        except Unread as error:
            owner.backlog.put(msg_id)
            self._file.lacks(error, now)
            return None
        except TooLate as error:
            claims.fail_late(owner, msg_id, error)
            return None
        except (BadMessage, NoSuchMessage) as error:
            lost_attempts.fail_malformed(owner.spool, msg_id, str(error))
            return None
        attempt = Attempt(
            Claim(
                message=message, slot=slot, seq=seq, wait_us=wait_us, batch_id=batch_id
            )
        )
        owner.attempts.claim(attempt)
        return attempt
