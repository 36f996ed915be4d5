"""The journal of a queue that is parked and woken: nothing is sealed within the hour, nothing
is written by a queue to which nothing has happened, and no event is lost."""

import os
import random
import subprocess
import time

import pytest
from harness.spool import check_live
from harness.waiting import wait_until

from rq.journal import history
from rq.proc import locks
from rq.words.states import State

HOUR = 3600


@pytest.fixture
def owner(owner):
    """One whose clock stands at the beginning of the hour, which the headers tell."""
    owner.clock.now = time.time() // HOUR * HOUR
    return owner


def active(owner):
    return [
        segment.name for segment in history.active_segments(owner.queue.journal_dir)
    ]


def sealed(owner):
    place = owner.queue.journal_dir
    return [
        each
        for name in history.journals(place)
        for each in (place.history / name).iterdir()
    ]


def seqs(owner):
    read = history.events_after(owner.queue.journal_dir, 0)
    return [event["seq"] for content in read for event in content.events]


def looked_at(owner):
    """Return how all files of a queue look."""
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in owner.queue.path.rglob("*")
        if path.is_file()
    }


def test_within_the_hour_nothing_is_sealed_and_all_is_there(owner):
    ids = []
    for _ in range(3):
        ids.append(owner.submit())
        owner.park()
        owner.open()
        assert owner.opened.clean
    assert sealed(owner) == []
    assert len(active(owner)) == 4
    assert [owner.spool.find(one) for one in ids] == [State.QUE] * 3
    assert seqs(owner) == list(range(1, 7))


@pytest.mark.parametrize("end", ["hour", "stop", "kill", "seal"])
def test_what_was_left_becomes_history(owner, end):
    owner.submit()
    owner.park()
    owner.open()
    if end == "hour":
        owner.park()
        owner.clock.now += HOUR
        owner.open()
    elif end == "stop":
        owner.stop()
        owner.open()
    elif end == "kill":
        owner.submit()
        owner.apply()
        owner.again()
    else:
        assert not owner.spool.is_sealed
        owner.spool.seal().result()
        assert owner.spool.is_sealed
        assert owner.spool.seal() is None
    assert sealed(owner)
    assert seqs(owner)[:2] == [1, 2]
    assert len(active(owner)) == 1


def test_a_queue_to_which_nothing_has_happened_writes_nothing(owner):
    owner.submit()
    owner.park()
    before = looked_at(owner)
    for _ in range(2):
        owner.open()
        owner.park()
    assert looked_at(owner) == before


@pytest.mark.parametrize("missing", [0, 1])
def test_what_may_have_been_left_is_looked_for_if_the_journal_ends_elsewhere(
    owner, missing
):
    owner.submit()
    slot, lease = owner.queue.path / "lease/0", f"{owner.opened.lease_prefix}0"
    journal, seq = owner.park()
    words = ["flock", "-F", str(slot), "sleep", "600"]
    with subprocess.Popen(words, env={**os.environ, "RQ_LEASE": lease}) as script:
        try:
            wait_until(lambda: locks.is_locked(slot))
            owner.open(parked_at=(journal, seq - missing))
            assert (script.poll() is None) is (missing == 0)
        finally:
            script.kill()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_event_is_lost_however_it_ends(owner, seed):
    chance = random.Random(seed)
    waiting, done = [], 0
    for _ in range(30):
        act = chance.choice(
            [
                "send",
                "send",
                "end",
                "park",
                "park",
                "park",
                "stop",
                "kill",
                "hour",
                "seal",
            ]
        )
        if act == "send":
            waiting.append(owner.submit())
        elif act == "end" and waiting:
            msg_id = waiting.pop()
            owner.spool.commit()
            owner.spool.claim(msg_id, 0)
            owner.end(msg_id)
            done += 1
        elif act == "hour":
            owner.clock.now += HOUR
        elif act == "seal":
            owner.spool.seal()
        elif act in {"park", "stop", "kill"}:
            owner.apply()
            {
                "park": type(owner).park,
                "stop": type(owner).stop,
                "kill": type(owner).crash,
            }[act](owner)
            owner.open()
            assert owner.opened.clean or act == "kill"
        assert owner.spool.counts.of(State.DONE) == done
        assert {i for i, _ in owner.spool.in_state(State.QUE)} == set(waiting)
    owner.apply()
    assert check_live(owner.spool) == []
    assert seqs(owner) == list(range(1, owner.spool.last_seq + 1))
