"""The end of transactions by age: open ones are aborted, old lists of ids removed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine

from rq.logs import fields
from rq.queues.control.deciding import aborted, follow_all
from rq.queues.owner.owner import Owner
from rq.spool import transactions
from rq.spool.transactions import Transaction

log = logging.getLogger(__name__)


def expire(
    owner: Owner,
    now: float,
    covered: int,
    spawn: Callable[[Coroutine[object, None, object]], None],
) -> None:
    """Abort transactions whose time is over; remove the lists of those that a checkpoint
    has `covered`: it goes up to that event."""
    spool = owner.spool
    for txn in spool.txns.open_ones():
        # One that is in a chain ends with its head.
        if not txn.head and now > txn.ends and txn.pending is None:
            log.warning(
                "a transaction was not committed in time; RQ aborts it: %s",
                fields(txn=txn.txn_id, messages=len(txn.members), ttl=txn.ttl),
            )
            txn.deciding = owner.loop.create_future()
            spawn(aborted(owner, txn, txn.deciding))
    for head in {txn.head for txn in spool.txns.open_ones() if _is_late(owner, txn)}:
        spawn(follow_all(owner, head))
    for txn in spool.txns.with_manifest():
        if txn.manifest <= covered:
            with contextlib.suppress(OSError):
                transactions.drop_manifest(spool.queue, txn)


def _is_late(owner: Owner, txn: Transaction) -> bool:
    """Whether its head was decided, and it could not follow."""
    return txn.pending is None and owner.spool.txns.due(txn) is not None
