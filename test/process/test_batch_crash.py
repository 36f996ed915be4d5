"""kill -9 of the owner of a batch: who had ended stays so, the others are counted once."""

import random
import time
from pathlib import Path

import pytest
from harness.extent import rotated
from harness.kills import BATCH, site_at
from harness.waiting import wait_until

pytestmark = pytest.mark.process

PATIENCE = 60.0
SCRIPT = (
    BATCH
    + r"""hold() { until [ -e "$RQ_ROOT/$1" ]; do sleep 0.05; done; }
[ -e "$RQ_ROOT/again" ] || . "$RQ_ROOT/acts/first"
echo "done in the end" >&3
"""
)
NUMBER = 4
CLAIM = ["journal:written", "journal:before-sync", "move:before-rename"]


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("first", "hold go")
        yield site


@pytest.fixture
def queue(site):
    return site.queue(script=SCRIPT, batch={"max": NUMBER, "wait": 3600}).start()


def send(queue, **fields):
    return [queue.submit(**fields) for _ in range(NUMBER)]


def pid_of(site, msg_id):
    return int(site.ran("start", msg_id)[0][2])


def is_gone(pid):
    """Whether a process has ended; one that the kernel still takes apart does nothing
    any more, and has no command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b""
    except OSError:
        return True


def start_again(site, queue):
    """Start the owner again; the next batch needs no word."""
    (site.root.path / "again").touch()
    queue.start()


def finish(queue, ids):
    """Let those that wait run, with who is there; all end well."""
    waiting = [one for one in ids if queue.state(one) == "que"]
    if waiting:
        queue.ok("run_message", {"msg_id": waiting[0]})
    return [queue.until(one, "done", PATIENCE) for one in ids]


def told(shown):
    return [(one["count"], one["attempt"]) for one in shown]


@pytest.mark.parametrize("how", rotated(["hold go", "kill -9 $PPID; hold go"]))
def test_who_had_ended_stays_so_and_the_others_run_again_counted_once(site, queue, how):
    site.act("first", f'echo "msg ${{ids[1]}} done early" >&3; hold said; {how}')
    ids = send(queue)
    queue.until(ids[1], "done", PATIENCE)
    (site.root.path / "said").touch()
    if how == "hold go":
        queue.kill()
    assert queue.died()
    start_again(site, queue)
    assert is_gone(pid_of(site, ids[0]))
    shown = finish(queue, ids)
    assert told(shown) == [(1, 2), (0, 1), (1, 2), (1, 2)]
    assert shown[1]["status"] == "done - early"
    assert shown[1]["result"]["batch"] == f"{ids[0]}.1"
    assert shown[0]["result"]["batch"] == f"{ids[0]}.2"
    assert [len(site.ran("start", one)) for one in ids] == [2, 1, 2, 2]
    wait_until(lambda: not site.holders())
    queue.prove()


def test_what_hides_from_a_dead_owner_is_ended_before_the_batch_runs_again(site, queue):
    site.act("first", "( setsid sleep 300 963>&- & ); exec env -i sleep 300")
    ids = send(queue)
    wait_until(lambda: len(site.holders()) >= 2, PATIENCE)
    queue.kill()
    start_again(site, queue)
    wait_until(lambda: not site.holders())
    assert told(finish(queue, ids)) == [(1, 2)] * NUMBER
    queue.prove()


@pytest.mark.parametrize("point", rotated(CLAIM))
def test_a_claim_that_was_written_counts_for_each_message(site, queue, point):
    queue.pause()
    ids = send(queue)
    wait_until(lambda: all(queue.places(one) == ["que"] for one in ids))
    queue.crash(point, queue.resume)
    start_again(site, queue)
    assert told(finish(queue, ids)) == [(1, 2)] * NUMBER
    queue.prove()


def test_a_claim_that_was_not_written_counts_for_none(site, queue):
    queue.pause()
    ids = send(queue)
    wait_until(lambda: all(queue.places(one) == ["que"] for one in ids))
    queue.crash("journal:before-write", queue.resume)
    start_again(site, queue)
    assert told(finish(queue, ids)) == [(0, 1)] * NUMBER
    queue.prove()


def test_a_batch_lost_at_the_limit_ends_in_err_with_its_story(site, queue):
    ids = send(queue, max_count=1)
    queue.until_started(ids[-1])
    queue.kill()
    start_again(site, queue)
    for msg_id in ids:
        shown = queue.until(msg_id, "err", PATIENCE)
        assert shown["result"]["cause"] == "crash_limit"
        assert shown["story"]["why"]
    queue.prove()


@pytest.mark.parametrize(
    ("point", "ended"),
    rotated(
        [
            ("journal:before-write", False),
            ("journal:written", True),
            ("journal:after-sync", True),
            ("move:before-rename", True),
            ("move:after-rename", True),
        ],
        2,
    ),
)
def test_the_end_of_one_stands_as_soon_as_its_line_is_written(
    site, queue, point, ended
):
    site.act("first", 'hold go; echo "msg ${ids[2]} done early" >&3; hold never')
    ids = send(queue)
    queue.until_started(ids[-1])
    queue.crash(point, site.go)
    start_again(site, queue)
    shown = finish(queue, ids)
    assert told(shown) == [(1, 2), (1, 2), (0, 1) if ended else (1, 2), (1, 2)]
    queue.prove()


@pytest.mark.parametrize(
    "point", rotated(["journal:written", "journal:after-sync", "move:before-rename"])
)
def test_a_batch_whose_end_was_written_does_not_run_again(site, queue, point):
    ids = send(queue)
    queue.until_started(ids[-1])
    queue.crash(point, site.go)
    # All of them; on a busy machine their ends may come in two groups of the journal.
    ended = {one["msg"] for one in queue.events() if one["ev"] == "finish"}
    assert ended
    start_again(site, queue)
    for shown in finish(queue, ids):
        assert shown["status"] == "done - in the end"
    runs = [1 if one in ended else 2 for one in ids]
    assert [len(site.ran("start", one)) for one in ids] == runs
    queue.prove()


def test_a_resend_that_had_not_happened_is_counted_as_lost(site, queue):
    site.act(
        "first", 'echo "msg ${ids[0]} resend 3600-x" >&3; echo "run x" >&3; hold go'
    )
    ids = send(queue)
    wait_until(lambda: queue.show(ids[1])["status"] == "run - x", PATIENCE)
    queue.kill()
    start_again(site, queue)
    assert told(finish(queue, ids)) == [(1, 2)] * NUMBER
    queue.prove()


def test_a_second_crash_while_recovering_counts_nothing_twice(site, queue):
    ids = send(queue)
    queue.until_started(ids[-1])
    queue.kill()
    (site.root.path / "again").touch()
    queue.start(crash_at="journal:written")
    assert queue.died()
    queue.start()
    assert told(finish(queue, ids)) == [(1, 2)] * NUMBER
    queue.prove()


def test_the_directory_that_a_dead_owner_left_is_removed(site, queue):
    site.act("first", ": > something; hold go")
    ids = send(queue)
    queue.until_started(ids[-1])
    [place] = (queue.dir.path / "batch").iterdir()
    assert place.name == f"{ids[0]}.1"
    queue.kill()
    start_again(site, queue)
    finish(queue, ids)
    left = queue.dir.path
    wait_until(lambda: not [*left.glob("batch/*"), *left.glob("gone/*")], PATIENCE)
    queue.prove()


# ---- at random

AT_RANDOM = (
    SCRIPT.partition("hold()")[0]
    + r"""
for id in "${ids[@]}"; do
    case $((RANDOM % 6)) in
    0) echo "msg $id resend 0-again" >&3 ;;
    1 | 2) sleep 0.00$((RANDOM % 10)); echo "msg $id done alone" >&3 ;;
    3) echo "msg $id run half" >&3 ;;
    esac
done
case $((RANDOM % 8)) in
0) kill -9 $$ ;;
1) exit 1 ;;
2) echo "resend 0-all" >&3 ;;
3) ( setsid sleep 60 & ) ; echo "done together" >&3 ;;
*) echo "done together" >&3 ;;
esac
"""
)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(10))
def test_whatever_dies_each_message_ends_once_and_no_two_attempts_overlap(site, seed):
    dice = random.Random(seed)
    queue = site.queue(
        script=AT_RANDOM,
        batch={"max": dice.choice([1, 3, 10, 50]), "wait": dice.choice([0, 0.3])},
        num_workers=dice.choice([1, 2, 4]),
    )
    queue.start(TEST_CHECKPOINT_SECONDS="0.3")
    ids = []
    for _ in range(15):
        ids += [queue.submit(max_count=10_000) for _ in range(dice.randrange(30))]
        time.sleep(dice.random() / 2)  # whatever may happen meanwhile
        if dice.random() < 0.6:
            assert queue.stop() == 0 if dice.random() < 0.2 else queue.kill() is None
            queue.start(TEST_CHECKPOINT_SECONDS="0.3")

    def hurried():
        for one in queue.ok("list", {"state": "que", "limit": 50}):
            queue.ask("run_message", {"msg_id": one["msg_id"]})
        return queue.ask("num_messages")["done"] == len(ids)

    wait_until(hurried, 4 * PATIENCE)
    wait_until(lambda: not site.holders(), PATIENCE)
    queue.prove()
