"""No turn of a queue's loop takes long, however much waits and whatever is asked.

Counted is the processor time of the loop's thread, by the queue itself.
"""

from __future__ import annotations

import json
import os

import pytest
from support import RunningQueue, kept, wait_until

from rq.proc import turnlimit

pytestmark = pytest.mark.process
LIMIT = "0.05"  # seconds


@pytest.fixture
def queue(tmp_path):
    """A queue that tells of long turns, and has told of none."""
    made = RunningQueue(tmp_path / "root", "t", "obey")
    made.env[turnlimit.LIMIT] = LIMIT
    with kept(made) as queue:
        yield queue
        assert long_turns(queue) == []


def long_turns(queue):
    return [one for one in queue.log().splitlines() if turnlimit.TOLD in one]


def test_a_turn_that_takes_long_is_told(tmp_path):
    made = RunningQueue(tmp_path / "root", "t", "obey")
    made.env[turnlimit.LIMIT] = "0.000000001"
    with kept(made) as queue:
        queue.ask("ping")
        assert long_turns(queue)


def test_what_lies_at_the_door_holds_nobody_up(queue):
    """Sixty folders with a megabyte each are hashed and synced beside the loop."""
    for number in range(60):
        made = queue.root.path / f"made-{number}"
        (made / "attach").mkdir(parents=True)
        (made / "attach" / "large").write_bytes(os.urandom(2**20))
        (made / "msg").write_text(json.dumps({"dest": "t", "due": 4e9}))
        made.rename(queue.dir.path / "new" / made.name)
    queue.ask("wake")
    wait_until(lambda: queue.ask("num_messages")["que"] == 60)
    assert long_turns(queue) == []
