"""Who is there of the workers elsewhere, and when one was heard of last."""

import pytest
from harness.spool import Clock

from rq.queues.attempts.lease import Lease
from rq.queues.attempts.leases import Leases
from rq.queues.attempts.remote_workers import FORGOTTEN, MOST_ROWS, THERE, RemoteWorkers
from rq.spool import Held


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def leases(clock):
    return Leases(clock)


@pytest.fixture
def workers(leases, clock):
    return RemoteWorkers(leases, clock)


def leased(leases, by, token="t"):
    now = leases.now()
    held = Held(
        attempt=1, token=token, by=by, seconds=60, since=now, renewed=now, started=True
    )
    lease = Lease(
        msg_id=token, held=held, seconds=60, until=now + 60, heard=now,
        wait_us=None, message=None, noted=now,
    )  # fmt: skip
    leases.add(lease)
    return lease


def facts(workers):
    found = workers.facts(7)
    return found["leases"], found["workers"], found["last_heard"]


def test_at_first_nobody_is_there(workers):
    assert facts(workers) == (0, 0, None)
    assert not workers.are_there()
    assert workers.rows() == []


def test_who_asks_is_there_until_he_has_not_asked_for_a_while(workers, clock):
    workers.hear("ann/blue", 4, "1.2", "blue.example")
    clock.now += THERE - 1
    workers.hear("ann/red", None, "", "")
    assert facts(workers) == (0, 2, clock.now)
    clock.now += 2
    assert facts(workers) == (0, 1, clock.now - 2)
    assert [row["there"] for row in workers.rows()] == [True, False]
    clock.now += THERE
    assert facts(workers) == (0, 0, clock.now - THERE - 2)
    assert not workers.are_there()
    clock.now += FORGOTTEN - THERE
    assert workers.rows() == []
    assert workers.facts(7)["last_heard"] == clock.now - FORGOTTEN - 2


def test_who_holds_a_lease_is_there_and_heard_of_by_what_he_says(
    workers, leases, clock
):
    workers.hear("ann/blue", 4, "1.2", "")
    lease = leased(leases, "ann/blue")
    clock.now += FORGOTTEN + 1
    leases.hear(lease, 60)
    clock.now += 5
    assert workers.are_there()
    assert facts(workers) == (1, 1, clock.now - 5)
    [row] = workers.rows()
    assert (row["busy"], row["there"], row["last_heard"]) == (1, True, clock.now - 5)
    leases.forget(lease)
    assert not workers.are_there()
    assert workers.rows() == []


def test_a_start_of_the_queue_forgets_who_asked_and_not_who_holds_something(
    workers, leases
):
    leased(leases, "ann/blue", "a")
    leased(leases, "ann/blue", "b")
    assert facts(workers) == (2, 1, None)
    [row] = workers.rows()
    assert (row["by"], row["busy"], row["last_heard"]) == ("ann/blue", 2, None)


def test_of_many_workers_those_are_listed_that_asked_last(workers):
    for number in range(MOST_ROWS + 5):
        workers.hear(f"ann/{number}", 1, "", "")
    rows = workers.rows()
    assert (len(rows), rows[0]["by"]) == (MOST_ROWS, f"ann/{MOST_ROWS + 4}")
    assert workers.facts(7)["workers"] == MOST_ROWS + 5
