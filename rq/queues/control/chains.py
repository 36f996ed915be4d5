"""Chains of transactions: what may be bound to a head, and committed with it."""

from __future__ import annotations

from rq.errors import BadInput, Busy, NoSuchMessage, WrongState
from rq.queues.owner.owner import Owner
from rq.spool import decisions
from rq.spool.transactions import Transaction


def head(owner: Owner, value: object, key: str | None) -> Transaction:
    """Return the transaction that is to decide for a new one; NoSuchMessage, WrongState or
    BadInput when it cannot."""
    if key is not None:
        raise BadInput("a transaction with `of` has no key: that has one")
    txn = owner.spool.txns.get(value) if isinstance(value, str) else None
    if txn is None:
        raise NoSuchMessage(f"no transaction {value!s:.60} for others to be `of`")
    if txn.head:
        raise WrongState(
            f"transaction {txn.txn_id} is of {txn.head}: open the new one with `of` that"
        )
    if not txn.is_open:
        raise WrongState(
            f"transaction {txn.txn_id} is {txn.standing}: nothing can be added to it"
        )
    check_rule(owner)
    if owner.spool.txns.in_chains >= decisions.LONGEST_CHAIN:
        raise Busy(
            f"not accepted: {decisions.LONGEST_CHAIN} transactions are in chains"
        )
    return txn


def check_rule(owner: Owner) -> None:
    """WrongState in a queue whose messages stand once: all would have to be compared with
    all in one turn."""
    if owner.uniqueness.on:
        raise WrongState(
            f"a queue with `unique` takes {decisions.MOST:,} messages in a transaction and "
            "no chain of them"
        )


def named(owner: Owner, txn: Transaction, value: object) -> list[str]:
    """Return the transactions that a commit names as its chain."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(
        isinstance(txn_id, str) for txn_id in value
    ):
        raise BadInput("'chain' is not a list of transactions")
    if txn.head and value:
        raise BadInput(f"transaction {txn.txn_id} is of {txn.head}: it has no chain")
    if value:
        check_rule(owner)
    return list(dict.fromkeys(value))
