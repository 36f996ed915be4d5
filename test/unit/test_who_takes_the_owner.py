"""Who joins most parts of a queue takes its `Owner` whole; all others take their parts."""

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
OWNER = "rq.queues.owner.owner"
MAY = {  # each with what it joins
    "process": "makes it, and ends it",
    "loop": "a turn claims, commits, answers, starts and settles",
    "housekeeping": "makes all that recurs, and gives each its parts",
    "runner.runner": "makes what starts and ends scripts, and gives each its parts",
    "runner.claims": "what waits, admission, slots and attempts, for each claim",
    "runner.batch_claims": "what waits, admission, slots and attempts, for each batch",
    "runner.batches": "settings, script, spool and loop, for each batch",
    "runner.launch": "settings, script, spool, loop and family, for each start",
    "runner.pool": "what waits, admission, settings, loop and workers",
    "runner.finish": "what is owed, settings and attempts, for each end of a script",
    "runner.end": "what waits, counters, spool and what is owed, for each end",
    "leases.grants": "what waits, admission, settings, spool and leases, for each lease",
    "leases.ends": "spool, what waits, leases, settings and counters, for each end",
    "leases.desk": "makes what hands out leases and ends them, and gives each its parts",
    "asking.asker": "spool, what waits, admission and loop, for each question",
    "asking.decisions": "spool, what waits and counters, for each message that is decided",
    "asking.questions": "spool, loop and threads, for each question",
    "asking.standing": "spool, for each message of which others ask",
    "control.predecessors": "what waits, settings and loop, before a message is accepted",
    "bulk.actions": "spool, what waits and attempts, for each message",
    "bulk.retry": "spool, what waits, attempts, settings and threads, for each message",
    "bulk.selection": "spool, loop and threads, for each look",
    "control.lease_requests": "settings and leases, for what a holder is told",
    "delivery.copies": "a copy is admitted, made, filled by threads and accepted",
    "parking": "looks at every part for what it has ahead",
    "maintenance.stall": "looks at every part for what holds messages up",
    "control.command": "hands it to the commands",
    "control.server": "whether a command is answered depends on all that is admitted",
    "control.create": "a message is admitted, made, filled by threads and accepted",
    "control.edit": "as create, and the message that it names is acknowledged",
    "control.idempotency": "as create, once for each key",
    "control.transactions": "as create, for many messages at once",
    "control.rows": "hands in as create, for many messages at once",
    "feed": "messages of rows are admitted, made and wait",
    "control.deciding": "commits and aborts as transactions do, some in each turn",
    "control.change": "settings, spool, what waits and threads, for each command",
    "control.query": "asks the views, and checks all there is",
    "control.message_view": "shows all that is known of a message",
    "control.waiting_view": "says why a message waits, whoever could take it",
    "control.message_list": "shows all that is known of many messages",
    "control.queue_view": "shows every part",
    "control.proof": "asks what is owed, here or elsewhere, before a command runs",
    "control.outbox": "shows what is owed, with settings and health",
}


def imports(text):
    """Return the modules from which a module's text imports, with the names after them."""
    tree = ast.parse(text)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    plain = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {
        *(alias.name for node in plain for alias in node.names),
        *(f"{node.module}.{alias.name}" for node in nodes for alias in node.names),
    }


def takes_owner(text):
    """Whether a module's text imports `Owner`, by whatever way."""
    return not imports(text).isdisjoint({OWNER, f"{OWNER}.Owner"})


def name_of(path):
    return ".".join(path.relative_to(CHECKOUT / "rq/queues").with_suffix("").parts)


TAKE = {
    name_of(path)
    for path in (CHECKOUT / "rq/queues").rglob("*.py")
    if takes_owner(path.read_text())
}


@pytest.mark.parametrize(
    "text",
    [
        f"from {OWNER} import Owner",
        f"import {OWNER}",
        "from rq.queues.owner import owner",
    ],
)
def test_an_import_is_seen(text):
    assert takes_owner(text)
    assert not takes_owner("from rq.queues.owner.settings import Settings")


def test_only_who_joins_most_parts_takes_all_of_them():
    assert sorted(TAKE - MAY.keys()) == []


def test_the_list_names_nobody_who_does_not():
    assert sorted(MAY.keys() - TAKE) == []
