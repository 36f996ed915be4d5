"""What retention looks at: each folder once, and later what came or went."""

import asyncio
import errno
import os
import sys
from types import SimpleNamespace

import pytest
from harness.spool import Owner

from rq.config.settings import QueueConfig
from rq.files import beneath
from rq.layout import QueueDir, folder
from rq.queues.concurrency import ThreadPools
from rq.queues.maintenance.counters import Counters
from rq.queues.maintenance.retention import Retention
from rq.words.states import State

COUNTED = (
    2  # listings of the errors before: those in err are counted, and those dismissed
)
BYTES = 10  # of a message
IN_A_MINUTE = 100


class Looks:
    """How often something is listed while it is open, by whatever code does it."""

    def __init__(self):
        self.folders = 0  # of messages whose files were measured, or removed
        self.errors = 0  # times that all of err was listed
        self.open = False
        sys.addaudithook(self._heard)

    def __enter__(self):
        self.folders, self.errors, self.open = 0, 0, True
        return self

    def __exit__(self, *_):
        self.open = False

    def _heard(self, event, args):
        if self.open and event == "os.scandir":
            self.folders += 1
        elif self.open and event == "os.listdir":
            self.errors += str(args[0]).endswith("/err")


@pytest.fixture(scope="module")
def looks():
    return Looks()


def ids(first, number):
    """Return ids, IN_A_MINUTE of them in each minute from the one called `first` on."""
    for at in range(first * IN_A_MINUTE, first * IN_A_MINUTE + number):
        minute, rest = divmod(at, IN_A_MINUTE)
        yield f"20260102.{minute // 60:02}{minute % 60:02}.00.{rest:03}.1"


def fill(queue, state, first, number):
    """Make folders of messages that ended long ago."""
    minutes = set()
    for one in ids(first, number):
        place = queue.path / folder(state, one)
        place.mkdir(parents=True)
        (place / "status").write_bytes(bytes(BYTES))
        minutes.add(place.parent)
    for minute in minutes:
        os.utime(minute, (1.7e9, 1.7e9))


class Kept:
    """A queue without a process, of which only retention is at work."""

    def __init__(self, path, limits):
        self.owner = Owner(path)
        self.owner.open()
        self._pools = ThreadPools()
        admission = SimpleNamespace(stopping=False, disk_failed=None)
        self.retention = Retention(
            SimpleNamespace(queue=QueueConfig(retention=limits)),
            self.owner.spool,
            admission,
            SimpleNamespace(committed=self._committed),
            Counters(self.owner.spool, admission, self._pools.looks),
            self._pools.looks,
        )

    def apply(self):
        return asyncio.run(self.retention.apply())

    async def _committed(self):
        self.owner.apply()

    def close(self):
        self._pools.close()
        self.owner.crash()


@pytest.fixture
def kept(tmp_path):
    """Fill a state, and give what applies retention to it."""
    made = []

    def make(state, number, **limits):
        fill(QueueDir(tmp_path / "queue/q"), state, 0, number)
        every = {one: {} for one in ("done", "relayed", "dismissed")}
        made.append(Kept(tmp_path, {**every, str(state): limits}))
        return made[0]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("number", [1000, 10_000])
def test_what_has_not_changed_is_not_weighed_again(kept, looks, number):
    one = kept(State.DONE, number, bytes=10**9)
    with looks:
        assert one.apply() == 0
    assert looks.folders == number
    fill(one.owner.queue, State.DONE, number // IN_A_MINUTE, 5)
    with looks:
        assert one.apply() == 0
    assert looks.folders == 5


@pytest.mark.parametrize("just_now", [True, False])
def test_who_comes_into_a_minute_makes_it_weighed_again(kept, looks, just_now):
    one = kept(State.DONE, 300, bytes=300 * BYTES)
    assert one.apply() == 0
    late = one.owner.queue.path / "done/20260102/00/00/20260102.0000.00.999.1"
    late.mkdir()
    (late / "status").write_bytes(bytes(BYTES))
    if not just_now:
        os.utime(late.parent, (1.7e9, 1.7e9 + 1))
    with looks:
        assert one.apply() == 1
    assert looks.folders <= IN_A_MINUTE + 2


@pytest.mark.parametrize("number", [1000, 4000])
def test_all_batches_of_a_walk_weigh_once(kept, looks, number):
    left = 500
    one = kept(State.DONE, number, bytes=left * BYTES)
    with looks:
        assert one.apply() == number - left
    assert looks.folders == left + 1 + (number - left)
    assert one.owner.spool.counts.of(State.DONE) == left


@pytest.mark.parametrize("number", [1000, 4000])
def test_what_was_dismissed_is_listed_once_for_all_batches(kept, looks, number):
    one = kept(State.DISMISSED, number, count=10)
    with looks:
        assert one.apply() == number - 10
    assert looks.errors == COUNTED + 1


def test_what_was_dismissed_is_not_weighed_again(kept, looks):
    one = kept(State.DISMISSED, 1000, bytes=10**9)
    with looks:
        assert one.apply() == 0
    assert looks.folders == 1000
    fill(one.owner.queue, State.DISMISSED, 10, 5)
    with looks:
        assert one.apply() == 0
    assert looks.folders == 5


def test_a_folder_that_cannot_be_looked_at_now_is_not_remembered_as_empty(
    kept, monkeypatch
):
    one = kept(State.DONE, 10, bytes=5 * BYTES)

    def lacks(path, dir_fd):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(beneath, "open_dir", lacks)
        with pytest.raises(OSError, match="Too many open files"):
            one.retention.weights.too_heavy(State.DONE, 5 * BYTES)
    assert one.apply() == 5
