"""All commands of the control socket: each parses its argument, calls one thing, answers.

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
from rq.queues.control.command import Command

COMMANDS: dict[str, Command] = {
    **query.COMMANDS,
    **create.COMMANDS,
    **bulk.COMMANDS,
    **change.COMMANDS,
    **edit.COMMANDS,
    **hold.COMMANDS,
    **bulks.COMMANDS,
    **ends.COMMANDS,
    **lease_requests.COMMANDS,
    **lease_words.COMMANDS,
    **lease_list.COMMANDS,
    **transactions.COMMANDS,
    **outbox.COMMANDS,
    **proof.COMMANDS,
    **notices.COMMANDS,
    **restore.COMMANDS,
}
