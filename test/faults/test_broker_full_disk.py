"""A broker on a disk that is full: what is there is handed out and acknowledged, new jobs are
refused with a sentence, and when there is space again it takes them, without a restart."""

import contextlib
import os

import pytest
from harness.broker import Refused, broker_in
from harness.waiting import wait_until

pytestmark = pytest.mark.process

BODY = "x" * 50_000


@pytest.fixture
def broker(disk):
    with broker_in(disk / "node") as broker:
        yield broker


def add(client, body=BODY):
    """Add a job; return its id, or None when it was refused for want of space."""
    answer = client.ask("ADDJOB", "q", body, 0, "RETRY", 1000)
    if isinstance(answer, Refused):
        assert answer.startswith("MISCONF Errors writing to the AOF file: no space"), (
            answer
        )
        return None
    return answer.encode()


def fill(client):
    """Add jobs until one is refused; return them."""
    ids = []
    while (job_id := add(client)) is not None:
        ids.append(job_id)
        assert len(ids) < 1000
    return ids


def taken(client):
    """Take and acknowledge all jobs; return them."""
    ids = []
    while got := client.ask("GETJOB", "NOHANG", "FROM", "q"):
        ids.append(got[0][1])
        assert client.ask("ACKJOB", got[0][1]) == 1
    return ids


def occupied(directory):
    """Take all space of a disk; return the file."""
    path = directory / "other"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"o" * 4096)
        except OSError:
            os.fsync(file.fileno())
    return path


def sealed(directory):
    """Return the bytes of journal that a broker keeps in full segments."""
    found = 0
    for path in directory.rglob("*.jsonl"):
        with contextlib.suppress(FileNotFoundError):  # it goes meanwhile
            found += path.stat().st_size
    return found


def lets_go_of(disk, full):
    """Whether far less is kept than when the disk was full, a little later."""
    return wait_until(lambda: sealed(disk) < full / 2, 60)


def test_a_broker_that_has_filled_its_disk_works_on_when_jobs_are_taken(broker, disk):
    client = broker.start()
    for _ in range(3):
        ids = fill(client)
        assert len(ids) > 20  # how many depends on which segments are made ready
        full = sealed(disk)
        assert taken(client) == ids
        wait_until(lambda: add(client, "again") is not None, 60)
        assert len(taken(client)) == 1
        assert lets_go_of(disk, full)
    client = broker.restart()
    assert taken(client) == []


def test_a_disk_that_others_fill_stops_no_consumer(broker, disk):
    client = broker.start()
    ids = [add(client, f"{n}") for n in range(2000)]
    other = occupied(disk)
    wait_until(lambda: add(client, "more") is None)
    done = taken(client)
    assert done[: len(ids)] == ids
    os.unlink(other)
    wait_until(lambda: add(client, "after") is not None)
    client = broker.restart()
    assert len(taken(client)) == 1


def test_nobody_is_refused_for_a_disk_that_was_full_before(broker, disk):
    client = broker.start()
    add(client, "first")
    wait_until((broker.directory / "journal" / "reserve").exists)
    other = occupied(disk)
    wait_until(lambda: add(client) is None)
    wait_until(lambda: "nothing new is taken: reason=" in broker.told())
    os.unlink(other)
    wait_until(lambda: "new jobs are taken again" in broker.told())
    assert add(client) is not None


def test_a_broker_starts_on_a_full_disk(broker, disk):
    client = broker.start()
    ids = [add(client, f"{n}") for n in range(100)]
    wait_until((broker.directory / "journal" / "reserve").exists)
    broker.kill()
    other = occupied(disk)
    client = broker.start()
    assert client.ask("QLEN", "q") == 100
    wait_until(lambda: add(client) is None)
    assert taken(client) == ids
    os.unlink(other)
    wait_until(lambda: add(client, "after") is not None)
