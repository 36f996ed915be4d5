"""All verbs of the control socket: each parses its argument, calls one thing, answers.

A handler returns the reply, or a coroutine that does. What it fires is promised when
its reply leaves, after the group is durable.
"""

from __future__ import annotations

from rq.queues import asking, changing, making, owing, restored, transactions
from rq.queues.verbs import Command

COMMANDS: dict[str, Command] = {
    **asking.COMMANDS,
    **making.COMMANDS,
    **changing.COMMANDS,
    **transactions.COMMANDS,
    **owing.COMMANDS,
    **restored.COMMANDS,
}
