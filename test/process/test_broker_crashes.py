"""kill -9 while a broker writes its journal, a snapshot, or starts: the same end."""

import contextlib

import pytest
from harness.broker import broker_in
from harness.waiting import wait_until

pytestmark = pytest.mark.process

SMALL = {"TEST_SNAPSHOT": "20000", "TEST_SEGMENT": "16384"}
BODY = "x" * 3000


@pytest.fixture
def broker(tmp_path):
    with broker_in(tmp_path / "node", SMALL) as broker:
        yield broker


def live(client):
    """Add jobs and acknowledge most of them, until the broker is killed; return what was
    promised to stay, and to be gone."""
    stay, gone = [], []
    with contextlib.suppress(EOFError, ConnectionError):
        for n in range(400):
            stay.append(client.ask("ADDJOB", "keep", f"{n}", 0).encode())
            job_id = client.ask("ADDJOB", "q", BODY, 0)
            if client.ask("ACKJOB", job_id) == 1:
                gone.append(job_id.encode())
    return stay, gone


def prove(client, stay, gone):
    got = client.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "keep")
    ids = [job_id for _, job_id, _ in got]
    assert ids[: len(stay)] == stay
    assert len(ids) <= len(stay) + 1  # one may have been added, and not told
    left = client.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "q") or []
    assert not {job_id for _, job_id, _ in left} & set(gone)


LIVING = [
    "journal:before-write#50",
    "journal:written#50",
    "journal:before-sync#50",
    "journal:after-sync#50",
    "segment:before-link#4",
    "seal:cut#2",
    "move:after-rename#2",
    "snapshot:before-rename",
    "snapshot:before-rename#2",
    "snapshot:renamed",
    "snapshot:renamed#2",
    "snapshot:forgotten",
]


@pytest.mark.parametrize("point", LIVING)
def test_a_broker_that_is_killed_while_it_works_loses_nothing(broker, point):
    broker.begin(crash_at=point)
    stay, gone = live(wait_until(broker.client))
    assert broker.process.wait(20) == -9
    prove(broker.start(), stay, gone)


STARTING = [
    "seal:written",
    "mark:before-write",
    "mark:written",
    "segment:before-link",
    "journal:written",
    "journal:before-sync",
]


def test_a_start_that_dies_again_and_again_comes_to_the_same_end(broker):
    broker.begin(crash_at="snapshot:renamed#2")
    stay, gone = live(wait_until(broker.client))
    died = 0
    for point in (*STARTING, *STARTING[::-1]):
        broker.begin(crash_at=point)
        with contextlib.suppress(EOFError, ConnectionError, AssertionError):
            wait_until(broker.client, 5).ask("ADDJOB", "other", "x", 0)
        broker.kill()
        died += broker.process.wait(20) == -9
    assert died >= len(STARTING)
    prove(broker.start(), stay, gone)
