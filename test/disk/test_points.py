"""The index of a queue that cannot be written: told, and nothing is left of it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from spooling import Owner

from rq.queues.points import Points


@pytest.fixture
def owner(tmp_path):
    made = Owner(tmp_path)
    made.open()
    yield made
    made.crash()


def test_an_index_that_cannot_be_put_in_its_place_is_told_and_removed(owner, caplog):
    (owner.queue.index / "in the way").mkdir(parents=True)
    owner.submit()
    owner.apply()
    loop = asyncio.new_event_loop()
    try:
        with ThreadPoolExecutor(1) as threads:
            queue = SimpleNamespace(
                spool=owner.spool,
                loop=loop,
                threads=threads,
                wake=lambda: None,
                disk_failed=None,
            )
            points = Points(queue, lambda: None)
            points.start_index()
            while points._index is not None:
                points.mind()
    finally:
        loop.close()
    assert "the index could not be written" in caplog.text
    assert not owner.queue.index.with_name(".index.tmp").exists()
