"""kill -9 of a queue whose workers stay: one attempt of one message a worker is lost, no
message runs twice at once, and what was handed in is not run again."""

import contextlib

import pytest
from harness.extent import rotated
from harness.kills import site_at
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown, Unreachable

pytestmark = pytest.mark.process

# As crashing.SCRIPT: whoever meets another attempt of its message says so.
WORKER = """#!/bin/bash
. "$RQ_SHARE/rq_worker.sh"
say() { echo "$1 $RQ_MSG_ID $$ $RQ_COUNT" >> "$RQ_ROOT/ran"; }
hold() { until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done; }
while rq_next; do
    exec 8>>"$RQ_ROOT/met.$RQ_MSG_ID"
    flock -n 8 || say overlap
    say start
    [ -z "$RQ_PARAM1" ] || . "$RQ_ROOT/acts/$RQ_PARAM1"
    say end
    echo "done fine" >&3
    exec 8>&-
done
"""
FIRST = '[ "$RQ_COUNT" = 0 ] || return 0\n'


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("hold", FIRST + "hold")
        yield site


@pytest.fixture
def queue(site, request):
    """Give a queue without directories for messages, unless a test asks for them."""
    directories = getattr(request, "param", False)
    settings = {"worker": "persistent", "worker_dir": directories}
    return site.queue(script=WORKER, **settings).start()


either = pytest.mark.parametrize(
    "queue", [True, False], ids=["directories", "none"], indirect=True
)


def counted(queue, msg_id):
    shown = queue.until(msg_id, "done")
    return shown["count"], shown["attempt"]


@pytest.mark.parametrize(
    ("point", "wanted", "starts"),
    [
        ("journal:before-write", (0, 1), 1),
        ("journal:written", (1, 2), 1),
        ("journal:before-sync", (1, 2), 2),
    ],
)
def test_a_claim_counts_when_it_was_written(queue, point, wanted, starts):
    queue.pause()
    msg_id = queue.submit("hold")
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.crash(point, queue.resume)
    queue.site.go()
    queue.start()
    assert counted(queue, msg_id) == wanted
    started = len(queue.site.ran("start", msg_id))
    assert started in (1, starts)  # it may have died before it read its line
    queue.prove()


@either
@pytest.mark.parametrize("deaf", ["", "trap '' TERM\n"])
def test_a_worker_whose_queue_died_is_ended_and_its_message_counted(site, queue, deaf):
    site.act("hold", FIRST + deaf + "hold")
    msg_id = queue.submit("hold")
    other = queue.submit()
    queue.until_started(msg_id)
    queue.kill()
    queue.start()
    assert counted(queue, msg_id) == (1, 2)
    assert counted(queue, other) == (0, 1)
    assert len(site.ran("end", msg_id)) == 1
    queue.prove()
    assert not site.holders()


def test_workers_without_a_message_end_with_their_queue(site, queue):
    assert counted(queue, queue.submit()) == (0, 1)
    assert site.holders()
    queue.kill()
    wait_until(lambda: not site.holders())
    queue.start()
    queue.prove()


def test_a_message_that_kills_its_queue_ends_in_err_and_harms_no_other(site, queue):
    site.act("poison", "kill -9 $PPID; hold")
    before = [queue.submit() for _ in range(3)]
    for one in before:
        queue.until(one, "done")
    msg_id = queue.submit("poison", max_count=2)
    assert queue.died()
    queue.start()
    assert queue.died()
    queue.start()
    shown = queue.until(msg_id, "err")
    assert shown["result"]["cause"] == "crash_limit"
    assert (shown["count"], shown["attempt"]) == (2, 2)
    after = [queue.submit() for _ in range(3)]
    for one in before + after:
        assert counted(queue, one) == (0, 1)
    queue.prove()


@pytest.mark.parametrize(
    ("point", "runs"),
    rotated(
        [
            ("journal:before-write", 2),
            ("journal:written", 1),
            ("journal:before-sync", 1),
            ("journal:after-sync", 1),
        ],
        2,
    ),
)
def test_a_message_that_was_handed_in_runs_again_only_if_that_was_not_written(
    site, queue, point, runs
):
    site.act("hold", "hold")
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    queue.crash(point, site.go)
    queue.start()
    assert counted(queue, msg_id) == (runs - 1, runs)
    assert len(site.ran("start", msg_id)) == runs
    queue.prove()


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "journal:before-write#4",
            "journal:written#9",
            "journal:before-sync#2",
            "move:before-rename#5",
            "move:after-rename#5",
        ],
        2,
    ),
)
def test_a_crash_among_many_costs_each_worker_one_attempt_at_most(site, point):
    settings = {"worker": "persistent", "worker_dir": False, "num_workers": 2}
    queue = site.queue(script=WORKER, **settings).start()
    queue.pause()
    ids = [queue.submit() for _ in range(40)]
    wait_until(lambda: all(queue.places(one) == ["que"] for one in ids))
    queue.arm(point)
    site.root.pause("t").unlink()
    with contextlib.suppress(OutcomeUnknown, Unreachable):
        for _ in range(20):
            ids.append(queue.submit())
    assert queue.died()
    queue.start()
    runs = [queue.until(one, "done")["attempt"] for one in ids]
    assert max(runs) <= 2
    assert runs.count(2) <= 2
    queue.prove()


def test_a_second_crash_in_the_recovery_of_the_first_counts_once(site, queue):
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    queue.kill()
    queue.start("recovery:before-retire")
    assert queue.died()
    queue.start()
    assert counted(queue, msg_id) == (1, 2)
    queue.prove()
