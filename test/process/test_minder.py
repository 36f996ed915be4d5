"""What the supervisor makes of children that it asked for and that never came."""

import asyncio
import time

import pytest

from rq.layout import Root
from rq.supervisor.children import Kind
from rq.supervisor.minder import Minder
from rq.words.states import Child

pytestmark = pytest.mark.process


def test_a_queue_that_never_came_does_not_keep_the_supervisor_from_ending(tmp_path):
    async def stopped():
        minder = Minder(Root(tmp_path), 1.0, lambda: True)
        try:
            process = minder.table.mind_queue("q")
            began = time.monotonic() - 3600
            process.started(began)  # the fork server was asked, and is stuck
            process.stopping(began)
            process.wanted = False
            minder.table.children.pop((Kind.FORKS, "forks"))
            minder.step()
            return process.state
        finally:
            minder.close()

    assert asyncio.run(stopped()) is Child.DOWN
