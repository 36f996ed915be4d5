"""The handler of each command: it parses its argument, calls one thing, answers.

A handler returns the reply, or a coroutine that does. What it fires is promised when
its reply leaves, after the group is durable.
"""

from __future__ import annotations

from rq.queues.control import (
    bulk,
    bulks,
    change,
    create,
    edit,
    ends,
    hold,
    lease_list,
    lease_requests,
    lease_words,
    notices,
    outbox,
    proof,
    query,
    restore,
    transactions,
)
from rq.queues.control.command import Handler

HANDLERS: dict[str, Handler] = {
    **query.HANDLERS,
    **create.HANDLERS,
    **bulk.HANDLERS,
    **change.HANDLERS,
    **edit.HANDLERS,
    **hold.HANDLERS,
    **bulks.HANDLERS,
    **ends.HANDLERS,
    **lease_requests.HANDLERS,
    **lease_words.HANDLERS,
    **lease_list.HANDLERS,
    **transactions.HANDLERS,
    **outbox.HANDLERS,
    **proof.HANDLERS,
    **notices.HANDLERS,
    **restore.HANDLERS,
}
