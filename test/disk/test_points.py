"""The index of a queue that cannot be written: told, and nothing is left of it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rq.queues.concurrency.wakeup import Wakeup
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.owner.health import Health


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def points(owner, threads):
    loop = asyncio.new_event_loop()
    yield Checkpoints(owner.spool, Health(), Wakeup(loop), threads, lambda reason: None)
    loop.close()


def written(points):
    """Write an index, up to its end in a thread."""
    points.start_index()
    while points._index is not None:
        points.mind()


def test_an_index_that_cannot_be_put_in_its_place_is_told_and_removed(
    owner, points, caplog
):
    (owner.queue.index / "in the way").mkdir(parents=True)
    owner.submit()
    owner.apply()
    written(points)
    points.abandon_index()
    assert "the index of a checkpoint could not be written" in caplog.text
    assert not owner.queue.index.with_name(".index.tmp").exists()


def test_the_end_waits_for_an_index_that_a_thread_puts_in_its_place(
    owner, points, threads
):
    owner.submit()
    owner.apply()
    go_on = threading.Event()
    threads.submit(go_on.wait)
    try:
        written(points)
        points.start_index()  # nothing: it would write into the same file
        assert points._index is None
        threading.Timer(0.3, go_on.set).start()
        points.abandon_index()
        assert owner.queue.index.exists()
    finally:
        go_on.set()
