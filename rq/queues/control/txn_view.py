"""How a transaction stands, as a client is told it."""

from __future__ import annotations

from rq.replies import TransactionView
from rq.spool.transactions import Transaction


def fields_of(txn: Transaction) -> TransactionView:
    """Return what a client is told of a transaction."""
    rows = sum(rows.left for rows in txn.rows.values())
    number = len(txn.members) + rows if txn.is_open else txn.number
    fields: TransactionView = {"txn": txn.txn_id, "state": txn.standing}
    if txn.key is not None:
        fields["key"] = txn.key.rpartition("\t")[2]  # as it was said, without its user
    if txn.head:
        fields["of"] = txn.head
    return {**fields, "messages": number, "ttl": txn.ttl, "until": txn.ends}


def now_of(txn: Transaction) -> TransactionView:
    """As `fields_of`, with what changes after its decision: how many rows wait."""
    rows = sum(rows.left for rows in txn.rows.values())
    return {**fields_of(txn), "rows": rows} if rows else fields_of(txn)
