"""A client that hangs up while it waits gets nothing: what came for it is there for the next.

The broker stands still while one client adds and another one hangs up, so that it hears of
both in one turn, whichever was first.
"""

import pytest
from harness.broker import Client, broker_in
from harness.processes import standing_still
from harness.waiting import wait_until

pytestmark = pytest.mark.process
# What waits, what lets it go on, and how the next client asks.
KINDS = {
    "GETJOB": (
        ("GETJOB", "TIMEOUT", 60_000, "FROM", "q"),
        ("ADDJOB", "q", "body", 0, "RETRY", 0, "REPLICATE", 1),
        ("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q"),
    ),
    "RQ.POP": (
        ("RQ.POP", "BLOCK", -1, "k"),
        ("RQ.PUSH", "k", "body"),
        ("RQ.POP", "k"),
    ),
    "QGET EX 0": (
        ("QGET", "e", "g", "EX", 0, "BLOCK", 60),
        ("QADD", "e", "60", "body"),
        ("QGET", "e", "g"),
    ),
    "QGET": (
        ("QGET", "e", "g", "EX", 3600, "BLOCK", 60),
        ("QADD", "e", "60", "body"),
        ("QGET", "e", "g"),
    ),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with broker_in(tmp_path_factory.mktemp("broker") / "node") as broker:
        broker.start().close()
        yield broker


@pytest.mark.parametrize("hangs_up_first", [True, False], ids=["first", "after"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_came_for_a_client_that_hung_up_is_had_by_the_next(
    shared, kind, hangs_up_first
):
    waits, adds, asks = KINDS[kind]
    client = Client(shared.port)
    for _ in range(10):
        waiter = Client(shared.port)
        waiter.send(*waits)
        wait_until(lambda: b"blocked_clients:1" in client.ask("INFO", "clients"))
        with standing_still(shared.process.pid):
            if hangs_up_first:
                waiter.close()
            client.send(*adds)
            if not hangs_up_first:
                waiter.close()
        added = client.answer()
        assert not str(added).startswith("ERR"), added
        had = wait_until(lambda: client.ask(*asks))
        assert b"body" in str(had).encode(), had
        if kind == "GETJOB":
            assert had[0][3:] == [b"nacks", 0, b"additional-deliveries", 0]
    client.close()
