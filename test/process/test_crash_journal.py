"""kill -9 while journal, checkpoint, index and recovery are written: the same end."""

import contextlib
import os
import shutil

import pytest
from harness.extent import rotated
from harness.kills import Queue, Site, site_at
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown, Unreachable
from rq.spool import index
from rq.words.states import State

pytestmark = pytest.mark.process

LATER = 4e9  # due in a hundred years: it stays in que


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("fail", "exit 1")
        site.act("hold", '[ "$RQ_COUNT" = 0 ] || return 0\nhold')
        yield site


@pytest.fixture
def queue(site):
    return site.queue(num_workers=4).start()


def populate(queue):
    """Send one message for each end; return {id: state}."""
    ends = {queue.submit(due=LATER): "que", queue.submit(): "done"}
    ends[queue.submit("fail")] = "err"
    for msg_id, state in ends.items():
        queue.until(msg_id, state)
    return ends


def prove_ends(queue, ends):
    for msg_id, state in ends.items():
        assert queue.state(msg_id) == state
    queue.prove()


STOP = [
    "stop:before-checkpoint",
    "seal:cut",
    "checkpoint:before-syncfs",
    "checkpoint:after-syncfs",
    "durable:before-rename",
    "durable:after-rename",
    "index:before-rename",
    "index:after-rename",
]


@pytest.mark.parametrize("point", rotated(STOP[::-1], 3))
def test_a_stop_that_is_killed_loses_nothing(queue, point):
    ends = populate(queue)
    queue.arm(point)
    queue.process.terminate()
    assert queue.died()
    queue.start()
    prove_ends(queue, ends)


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "checkpoint:before-syncfs",
            "checkpoint:after-syncfs",
            "durable:before-rename",
            "durable:after-rename",
        ],
        2,
    ),
)
def test_a_checkpoint_that_is_killed_loses_nothing(site, point):
    queue = site.queue().start(TEST_CHECKPOINT_SECONDS="0.05")
    ends = populate(queue)
    queue.crash(point, lambda: queue.submit(due=LATER))
    queue.start()
    prove_ends(queue, ends)


def test_a_message_that_runs_over_a_checkpoint_is_counted_once_for_each_crash(site):
    site.act("hold", '[ "$RQ_COUNT" = 2 ] || hold')
    queue = site.queue().start(TEST_CHECKPOINT_SECONDS="0.05")
    msg_id = queue.submit("hold")
    for started in (1, 2):
        queue.until_started(msg_id, started)
        at_work = f'"{msg_id}":{started}'  # an attempt, as a checkpoint names it
        wait_until(lambda one=at_work: one in queue.dir.checkpoint.read_text())
        queue.kill()
        queue.start(TEST_CHECKPOINT_SECONDS="0.05")
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (2, 3)
    queue.prove()


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "segment:before-link",
            "journal:before-sync",
            "journal:after-sync",
            "move:before-rename",
            "move:after-rename",
            "seal:cut",
        ],
        3,
    ),
)
def test_a_segment_that_is_cut_off_while_it_is_made_or_sealed_is_no_loss(queue, point):
    ends = populate(queue)
    queue.crash(point, lambda: queue.ask("seal"))
    queue.start()
    more = queue.submit()
    queue.until(more, "done")
    assert no_gaps(queue)
    prove_ends(queue, ends)


def no_gaps(queue):
    seqs = [one["seq"] for one in queue.events() if "seq" in one]
    return seqs == list(range(1, len(seqs) + 1))


def test_a_journal_of_many_segments_is_read_to_its_end(queue):
    ends = {queue.submit(due=LATER, bulk="x" * 100_000): "que" for _ in range(40)}
    queue.restart()
    assert len(list(queue.dir.history.glob("*/*.jsonl"))) >= 2
    assert no_gaps(queue)
    prove_ends(queue, ends)


@pytest.mark.parametrize("how", ["half", "missing", "left_over"])
def test_a_torn_index_is_no_loss(queue, how):
    ends = populate(queue)
    assert queue.stop() == 0
    data = queue.dir.index.read_bytes()
    if how == "half":
        queue.dir.index.write_bytes(data[: len(data) // 2])
        assert index.read(queue.dir) is None
    elif how == "missing":
        queue.dir.index.unlink()
    else:
        queue.dir.index.with_name(".index.tmp").write_bytes(data[: len(data) // 2])
    queue.start()
    prove_ends(queue, ends)


def test_an_index_older_than_the_journal_is_brought_up_to_it(queue):
    gone = queue.submit(due=LATER)
    ends = populate(queue)
    assert queue.stop() == 0
    queue.start()
    queue.ok("delete_message", {"msg_id": gone})
    ends |= populate(queue)
    wait_until(lambda: queue.places(gone) == [])
    queue.promised.remove(gone)
    queue.restart()
    assert queue.ask("get_message_state", {"msg_id": gone})[0] == "fail"
    prove_ends(queue, ends)


# ---- recovery

RECOVERY = [
    "segment:before-link",
    "journal:before-sync",
    "journal:after-sync",
    "recovery:before-retire",
    "seal:written",
    "move:before-rename",
    "move:after-rename",
    "move:after-rename#2",
    "journal:before-write",
    "journal:written",
    "journal:after-sync#2",
    "make:before-msg",
    "write:before-rename",
    "write:before-rename#2",
    "move:after-rename#3",
    "move:after-rename#4",
]


def ends_of(queue):
    """Return {id: (state, count, attempt)} of all messages."""
    found = {}
    for state in ("prep", "que", "run", "done", "err"):
        for one in queue.ok("list", {"state": state, "limit": 1000}):
            shown = queue.show(one["msg_id"])
            found[one["msg_id"]] = (state, shown["count"], shown.get("attempt"))
    return found


@pytest.fixture
def crashed(site):
    """Give a queue that died with something of everything on its way."""
    queue = site.queue(num_workers=2).start()
    populate(queue)
    removed = queue.submit(due=LATER)
    [queue.submit("hold") for _ in range(2)]
    wait_until(lambda: len(site.ran("start")) == 4)
    failed = queue.submit("fail", due=LATER)
    queue.prepare()
    wait_until(lambda: queue.places(removed) == ["que"])
    queue.ask("run_message", {"msg_id": failed})
    queue.ask("delete_message", {"msg_id": removed})
    queue.promised.remove(removed)
    queue.crash("journal:after-sync", queue.submit)
    site.root.pause(queue.name).touch()
    return queue


def copied(queue, path):
    """Return the queue in a copy of its root, as the crash has left it."""
    shutil.copytree(
        queue.site.root.path, path, ignore=lambda _, names: set(names) & {"queue.sock"}
    )
    copy = Site.__new__(Site)
    copy.__dict__.update(queue.site.__dict__)
    copy.root = type(queue.site.root)(path)
    copy.queues = {}
    return Queue(copy, queue.name)


@pytest.mark.slow
@pytest.mark.parametrize("repeat", [RECOVERY, RECOVERY[::-1]], ids=["on", "back"])
def test_a_recovery_that_dies_again_and_again_comes_to_the_same_end(
    crashed, tmp_path, repeat
):
    straight = copied(crashed, tmp_path / "copy")
    try:
        straight.start().ok("restore", {"as": "same"})
        wait_until(lambda: straight.ok("restored")["why"] is None)
        expected = ends_of(straight)
    finally:
        straight.kill()
    reached = set(repeat)
    for point in repeat:
        crashed.start(crash_at=point)
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            crashed.ask("check")  # makes all folders: the last points lie there
            reached.discard(point)
        crashed.kill()
    assert len(reached) >= 7
    crashed.start()
    assert ends_of(crashed) == expected
    crashed.prove()


def test_a_second_recovery_counts_no_attempt_again(site, queue):
    site.act("hold", "hold")
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    queue.kill()
    site.root.pause(queue.name).touch()
    for _ in range(3):
        queue.start()
        shown = queue.show(msg_id)
        assert (shown["state"], shown["count"], shown["attempt"]) == ("que", 1, 1)
        queue.kill()
    site.go()
    site.root.pause(queue.name).unlink()
    queue.start()
    assert queue.until(msg_id, "done")["attempt"] == 2
    queue.prove()


def test_a_folder_that_was_claimed_but_is_in_no_line_is_taken_back(queue):
    """What a power cut leaves when the folder was ahead of the journal."""
    msg_id = queue.submit(due=LATER)
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.kill()
    path = queue.dir.message(State.RUN, msg_id)
    os.rename(queue.dir.message(State.QUE, msg_id), path)
    queue.start()
    shown = queue.show(msg_id)
    assert (shown["state"], shown["count"]) == ("que", 1)
    queue.prove()
