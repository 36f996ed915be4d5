"""Checkpoints and the index beside them: what waits, and what cannot be written."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rq.queues.concurrency import Wakeup
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.owner.health import Health
from rq.spool import checkpoint


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


def test_a_checkpoint_asks_for_no_turns_while_folders_rest(owner, points, monkeypatch):
    """The loop looks after them by itself, now and then."""
    monkeypatch.setattr(checkpoint, "AFTER_SECONDS", 0.0)
    msg_id = owner.submit()
    owner.spool.commit()
    points.committed()
    assert points.mind()  # there is a folder to be made
    owner.spool.claim(msg_id, 0)
    owner.spool.rest(msg_id)
    owner.spool.commit()
    owner.spool.settle_some(1.0)
    assert owner.spool.rests
    assert not points.mind()
    owner.apply()
    assert not owner.spool.checkpoint_waits
