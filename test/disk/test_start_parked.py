"""RQ starts where very many queues were parked when it stopped: what that costs for each."""

import asyncio
import json

import pytest
from harness import left_parked
from harness.steps import calls

from rq.layout import Root
from rq.rpc import client
from rq.supervisor.minder import Minder
from rq.words.states import Child

MANY = 40


@pytest.fixture
def root(tmp_path):
    root = left_parked.make_root(tmp_path / "root")
    every = [f"q{number}" for number in range(MANY)]
    for name in every:
        left_parked.leave(root, name)
    root.begun.write_text(json.dumps({"names": every}))
    return root


def started(root, act):
    """Start what a supervisor starts with, and do something with it."""

    async def run():
        minder = Minder(root, 1.0, lambda: True)
        try:
            counts = calls(lambda: start(minder))
            await act(minder, counts)
        finally:
            minder.close()

    asyncio.run(run())


def start(minder):
    minder.places.hold_lost()
    minder.table.mind_queues()
    minder.adopt()
    minder.park_again()


def states(minder):
    return [process.state for process in minder.table.queues().values()]


def test_each_is_read_once_and_nothing_is_written_or_asked(root: Root):
    before = left(root)

    async def look(minder, counts):
        assert states(minder) == [Child.PARKED] * MANY
        assert counts["bind"] == MANY
        assert (counts["fsync"], counts["rename"], counts["asdict"]) == (0, 0, 0)
        assert counts["connect"] == 0
        assert counts["read_json"] <= 3  # of the root, not of each queue
        assert counts["scandir"] <= 3 * MANY  # new/, its journal twice

    started(root, look)
    assert left(root) == before


def left(root):
    return {path: path.stat().st_mtime_ns for path in root.queues.glob("*/parked.json")}


def test_a_pass_looks_at_none_that_is_parked(root):
    async def look(minder, counts):
        minder.table.forget("q0")
        assert [name for (_, name), _ in minder.table.awake()] == ["forks"]
        assert minder.table.next_wake() is None

    started(root, look)


def test_who_connects_to_one_wakes_that_one(root):
    async def look(minder, counts):
        client.connect(root.queue("q7").socket, 1.0).close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [name for (_, name), _ in minder.table.awake()] == ["forks", "q7"]

    started(root, look)


def test_one_that_a_person_has_edited_starts(root):
    (root.queue("q3").path / "que" / "x").mkdir()

    async def look(minder, counts):
        assert minder.table.queue("q3").state is Child.DOWN
        assert states(minder).count(Child.PARKED) == MANY - 1

    started(root, look)


def test_one_whose_journal_is_gone_is_held(root):
    (root.queue("q3").path / "journal" / "1").unlink()

    async def look(minder, counts):
        assert minder.places.all_held() == {"q3"}
        assert minder.table.queue("q3").state is Child.DOWN

    started(root, look)
