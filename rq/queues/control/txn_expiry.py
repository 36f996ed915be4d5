"""The end of transactions: open ones are aborted by age, chains that are decided go on, and
old lists of ids are removed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine
from itertools import islice

from rq.logs import fields
from rq.queues.control.deciding import aborted, follow_all
from rq.queues.control.txn_view import fields_of
from rq.queues.owner.owner import Owner
from rq.spool import transactions

_DROPPED = 500  # lists of ids that are removed in one turn

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
                fields(
                    txn=txn.txn_id, messages=fields_of(txn)["messages"], ttl=txn.ttl
                ),
            )
            txn.deciding = owner.loop.create_future()
            spawn(aborted(owner, txn, txn.deciding))
    old = (txn for txn in spool.txns.with_manifest() if txn.manifest <= covered)
    for txn in islice(old, _DROPPED):
        with contextlib.suppress(OSError):
            transactions.drop_manifest(spool.queue, txn)


def go_on(
    owner: Owner, spawn: Callable[[Coroutine[object, None, object]], None]
) -> None:
    """Go on with chains that are decided, whatever the clock says."""
    txns = owner.spool.txns
    for head in txns.late():
        # Of those that somebody leads already, one is being worked on.
        if all(txn.pending is None for txn in txns.bound(head)):
            spawn(follow_all(owner, head))
