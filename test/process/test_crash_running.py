"""kill -9 while messages run: counted as told, never two attempts at once, done once."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from harness.extent import rotated
from harness.kills import site_at
from harness.queues import short
from harness.waiting import wait_until

pytestmark = pytest.mark.process

# Its leader ends, when it may, after the child that stays can no longer be told to end.
IGNORES_TERM = """( trap '' TERM; : >trapped; sleep 300 ) &
while [ ! -e trapped ]; do sleep 0.01; done
hold
"""
FIRST = '[ "$RQ_COUNT" = 0 ] || return 0\n'  # a second attempt ends at once


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("hold", FIRST + "hold")
        yield site


@pytest.fixture
def queue(site):
    return site.queue().start()


def pid_of(site, msg_id):
    return int(site.ran("start", msg_id)[0][2])


def is_gone(pid):
    """Whether a process has ended; one that the kernel still takes apart does nothing
    any more, and has no command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b""
    except OSError:
        return True


# ---- before and while a script runs

CLAIM = ["journal:written", "move:before-rename", "move:after-rename"]


@pytest.mark.parametrize("point", rotated(CLAIM))
def test_a_claim_that_was_written_counts_as_an_attempt(queue, point):
    queue.pause()
    msg_id = queue.submit()
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.crash(point, queue.resume)
    queue.start()
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (1, 2)
    assert len(queue.site.ran("start", msg_id)) == 1
    queue.prove()


@pytest.mark.parametrize("point", rotated(CLAIM))
def test_a_claim_lost_at_the_limit_ends_in_err_with_its_story(queue, point):
    queue.pause()
    msg_id = queue.submit(max_count=1)
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.crash(point, queue.resume)
    queue.start()
    shown = queue.until(msg_id, "err")
    assert shown["result"]["cause"] == "crash_limit"
    assert shown["story"]["why"]
    assert queue.site.ran("start", msg_id) == []
    queue.prove()


def test_a_claim_that_was_not_written_has_started_nothing(queue):
    queue.pause()
    msg_id = queue.submit()
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.crash("journal:before-write", queue.resume)
    queue.start()
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (0, 1)
    assert len(queue.site.ran("start", msg_id)) == 1
    queue.prove()


@pytest.mark.parametrize("point", ["journal:before-sync", "journal:after-sync"])
def test_a_script_started_before_its_claim_was_synced_is_ended_and_counted(
    site, queue, point
):
    queue.pause()
    msg_id = queue.submit("hold")
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.crash(point, queue.resume)
    queue.start()
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (1, 2)
    assert not site.holders()
    queue.prove()


HIDING = {
    "ignores_term": "trap '' TERM; hold",
    "closes_the_lease": "( setsid sleep 300 963>&- & ); exec 963>&-; hold",
    "clears_its_environment": "( setsid env -i sleep 300 & ); exec env -i sleep 300",
    "hold": "hold",
    "double_fork": "( setsid sleep 300 & ); hold",
    "ends_its_leader_too": "( setsid sleep 300 963>&- & ); exec env -i sleep 300",
    "kills_its_queue_first": "kill -9 $PPID; hold",
}


@pytest.mark.parametrize("how", rotated(HIDING, 3))
def test_a_worker_whose_owner_died_is_ended_before_its_message_runs_again(
    site, queue, how
):
    site.act(how, FIRST + HIDING[how])
    msg_id = queue.submit(how)
    queue.until_started(msg_id)
    if "setsid" in HIDING[how]:
        wait_until(lambda: len(site.holders()) >= 2)
    queue.kill()
    queue.start()
    assert is_gone(pid_of(site, msg_id))
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (1, 2)
    assert len(site.ran("start", msg_id)) == 2
    assert len(site.ran("end", msg_id)) == 1
    wait_until(lambda: not site.holders())
    queue.prove()


def test_strangers_are_left_alone_by_a_recovery(site, queue):
    other = site.queue("other").start()
    site.act("hold", "hold")
    mine, theirs = queue.submit("hold"), other.submit("hold")
    queue.until_started(mine)
    other.until_started(theirs)
    queue.restart()
    assert is_gone(pid_of(site, mine))
    assert not is_gone(pid_of(site, theirs))
    site.go()
    assert other.until(theirs, "done")["count"] == 0
    other.prove()


@pytest.mark.slow
def test_a_child_that_outlives_its_leader_is_ended_before_the_message_runs_again(
    tmp_path,
):
    with site_at(tmp_path / "root", grace=2.5) as site:
        site.act("leave", FIRST + IGNORES_TERM)
        queue = site.queue().start()
        msg_id = queue.submit("leave")
        queue.until_started(msg_id)
        queue.process.send_signal(signal.SIGSTOP)  # it would end the child in 2 s
        site.go()
        wait_until(lambda: site.ran("end", msg_id) and is_gone(pid_of(site, msg_id)))
        queue.kill()
        assert site.holders()
        queue.start()
        assert queue.until(msg_id, "done")["count"] == 1
        assert len(site.ran("start", msg_id)) == 2
        wait_until(lambda: not site.holders())
        queue.prove()


def test_a_message_that_kills_its_queue_ends_in_err(site, queue):
    site.act("poison", "kill -9 $PPID; hold")
    msg_id = queue.submit("poison", max_count=3)
    for attempt in (1, 2, 3):
        assert queue.died()
        assert len(site.ran("start", msg_id)) == attempt
        queue.start()
    shown = queue.until(msg_id, "err")
    assert (shown["count"], shown["attempt"]) == (3, 3)
    assert shown["result"]["cause"] == "crash_limit"
    healthy = queue.submit()
    queue.until(healthy, "done")
    queue.prove()


def test_a_message_that_kills_its_queue_after_a_resend_is_counted_too(site, queue):
    site.act(
        "later_poison",
        "[ \"$RQ_COUNT\" = 0 ] || kill -9 $PPID\necho 'resend 0-once more' >&3; exit 0",
    )
    msg_id = queue.submit("later_poison", max_count=3)
    for attempts in (3, 6):
        for _ in range(2):
            assert queue.died()
            queue.start()
        shown = queue.until(msg_id, "err")
        assert (shown["count"], shown["attempt"]) == (3, attempts)
        # Of these three tries one was a resend.
        assert shown["lost_attempts"] == 2
        assert "its attempt was lost 2 times, and" in shown["story"]["what"]
        assert "(tries used: 3)" in shown["story"]["why"]
        if attempts == 3:
            queue.ok("retry_message", {"msg_id": msg_id})  # all counts begin again
    assert [one[3] for one in site.ran("start", msg_id)] == ["0", "1", "2"] * 2
    queue.prove()


# ---- at its end


@pytest.mark.parametrize(
    ("point", "runs"),
    rotated(
        [
            ("journal:before-write", 2),
            ("journal:written", 1),
            ("journal:after-sync", 1),
            ("move:before-rename", 1),
            ("move:after-rename", 1),
        ],
        2,
    ),
)
def test_a_script_that_has_ended_runs_again_only_if_its_end_was_not_written(
    site, queue, point, runs
):
    site.act("hold", "hold")
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    queue.crash(point, site.go)
    queue.start()
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (runs - 1, runs)
    assert shown["status"] == "done - fine"
    assert shown["result"]["exit"] == 0
    assert len(site.ran("start", msg_id)) == runs
    queue.prove()


@pytest.fixture
def riding(site):
    """Give a queue with a leader that runs and two riders."""
    site.act("hold", "hold")
    queue = site.queue(coalesce_params=[1]).start()
    queue.pause()
    ids = [queue.submit("hold") for _ in range(3)]
    queue.resume()
    wait_until(lambda: site.ran("start"))
    return queue, ids


@pytest.mark.parametrize("point", ["journal:after-sync", "move:after-rename"])
def test_riders_end_with_their_leader_in_one_line(site, riding, point):
    queue, ids = riding
    queue.crash(point, site.go)
    queue.start()
    for msg_id in ids:
        queue.until(msg_id, "done")
    leader = short(queue.show(ids[1])["dup"])
    assert sorted(queue.show(leader)["dups"]) == sorted(
        f"http://127.0.0.1:3333/q/t/{one}" for one in ids if one != leader
    )
    assert len(site.ran("start")) == 1
    queue.prove()


def test_riders_wait_again_when_their_leader_is_lost(site, riding):
    queue, ids = riding
    queue.crash("journal:before-write", site.go)
    queue.start()
    for msg_id in ids:
        queue.until(msg_id, "done")
    assert len(site.ran("start")) == 2
    queue.prove()


# ---- what a message owes and asks


@pytest.fixture
def webhook(site):
    return site.queue("webhook").start()


@pytest.mark.parametrize(
    "point",
    rotated(["journal:written", "journal:after-sync", "move:before-rename"]),
)
def test_a_webhook_that_is_owed_is_sent_once_after_a_crash(site, queue, webhook, point):
    site.act("hold", "hold")
    msg_id = queue.submit("hold", post_run_webhook="http://hooks.example/told")
    queue.until_started(msg_id)
    queue.crash(point, site.go)
    assert webhook.ids() == []
    queue.start()
    queue.until(msg_id, "done")
    wait_until(webhook.ids, 60)
    queue.restart()
    queue.ok_wake()
    queue.prove()
    assert len(webhook.ids()) == 1
    webhook.prove()


@pytest.mark.parametrize(
    "point", rotated(["journal:before-write#2", "journal:written#2"])
)
def test_a_webhook_sent_but_not_noted_is_sent_again_and_taken_once(
    site, queue, webhook, point
):
    site.act("hold", "hold")
    msg_id = queue.submit("hold", post_run_webhook="http://hooks.example/told")
    queue.until_started(msg_id)
    queue.crash(point, site.go)
    wait_until(webhook.ids, 60)
    webhook.restart()  # it must remember the key too
    queue.start()
    queue.until(msg_id, "done")
    wait_until(lambda: queue.ok("detail").get("owed", 0) == 0, 60)
    queue.prove()
    assert len(webhook.ids()) == 1
    webhook.prove()


def test_a_copy_that_was_answered_stays_when_its_sender_dies(site, queue):
    other = site.queue("other", "#!/bin/sh\necho done ok >&3\n").start()
    site.act(
        "dup",
        "echo 'dup 0-X-other' >&3\nread -r answer <&4\n"
        'echo "$answer" >> "$RQ_ROOT/answers"\n' + FIRST + "kill -9 $PPID; hold",
    )
    msg_id = queue.submit("dup")
    assert queue.died()
    queue.start()
    queue.until(msg_id, "done")
    answers = (site.root.path / "answers").read_text().split()
    assert answers[0::2] == ["ok", "ok"]
    other.promised = [short(one) for one in answers[1::2]]
    for one in other.promised:
        other.until(one, "done")
    other.prove()
    assert len(set(other.promised)) == len(other.ids()) == 2
    queue.prove()


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "journal:written",
            "journal:after-sync",
            "move:before-rename",
            "move:after-rename",
        ]
    ),
)
def test_a_resend_that_was_written_keeps_its_time_and_its_count(site, queue, point):
    site.act("resend", FIRST + "hold; echo 'resend 1000-later' >&3; exit 0")
    msg_id = queue.submit("resend")
    queue.until_started(msg_id)
    queue.crash(point, site.go)
    began = os.stat(site.root.path / "go").st_mtime
    for _ in range(2):
        queue.restart()
        shown = queue.show(msg_id)
        assert (shown["state"], shown["count"], shown["attempt"]) == ("que", 1, 1)
        assert 999 < shown["due"] - began < 1060
    queue.ok("run_message", {"msg_id": msg_id})
    queue.until(msg_id, "done")
    assert [one[3] for one in site.ran("start", msg_id)] == ["0", "1"]
    queue.prove()


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "journal:written",
            "journal:after-sync",
            "overwrite:before-cut",
            "move:before-rename",
            "move:after-rename",
        ],
        2,
    ),
)
def test_a_retry_that_was_written_is_not_forgotten(site, queue, point):
    site.act("fail", '[ -e "$RQ_ROOT/go" ] || { echo "err bad" >&3; exit 0; }')
    msg_id = queue.submit("fail")
    queue.until(msg_id, "err")
    wait_until(lambda: queue.places(msg_id) == ["err"])
    queue.pause()
    queue.crash(point, lambda: queue.ask("retry_message", {"msg_id": msg_id}))
    site.go()
    queue.start()
    assert queue.state(msg_id) == "que"
    queue.resume()
    assert queue.until(msg_id, "done")["attempt"] == 2
    queue.prove()


# ---- stopped and removed


def test_what_a_stop_cuts_short_is_not_counted(site, queue):
    site.act("hold", "hold")
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    assert queue.stop() == 0
    site.go()
    queue.start()
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (0, 2)
    queue.prove()


@pytest.mark.parametrize(
    ("point", "count"), [("journal:before-write", 1), ("journal:written", 0)]
)
def test_a_stop_that_is_killed_counts_unless_its_line_was_written(
    site, queue, point, count
):
    site.act("hold", "hold")
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    queue.arm(point)
    queue.process.terminate()
    assert queue.died()
    site.go()
    queue.start()
    shown = queue.until(msg_id, "done")
    assert (shown["count"], shown["attempt"]) == (count, 2)
    queue.prove()


@pytest.mark.parametrize("point", rotated(["journal:written", "move:after-rename"]))
@pytest.mark.parametrize("state", ["prep", "que", "err", "done"])
def test_a_removed_message_never_comes_back(site, queue, state, point):
    site.act("fail", "exit 1")
    if state == "prep":
        msg_id = queue.prepare()
    else:
        act = "fail" if state == "err" else ""
        msg_id = queue.submit(act, due=4e9 if state == "que" else 0)
    queue.until(msg_id, state)
    wait_until(lambda: queue.places(msg_id) == [state])
    queue.crash(point, lambda: queue.ask("delete_message", {"msg_id": msg_id}))
    for _ in range(2):
        queue.restart()
        assert queue.ask("get_message_state", {"msg_id": msg_id})[0] == "fail"
        wait_until(lambda: queue.places(msg_id) == [])
    queue.prove(gone=(msg_id,))


@pytest.mark.parametrize("state", ["prep", "que", "err", "done"])
def test_a_removal_that_was_not_written_has_not_happened(site, queue, state):
    site.act("fail", "exit 1")
    if state == "prep":
        msg_id = queue.prepare()
    else:
        act = "fail" if state == "err" else ""
        msg_id = queue.submit(act, due=4e9 if state == "que" else 0)
    queue.until(msg_id, state)
    wait_until(lambda: queue.places(msg_id) == [state])
    asked = {"msg_id": msg_id}
    queue.crash("journal:before-write", lambda: queue.ask("delete_message", asked))
    queue.start()
    assert queue.state(msg_id) == state
    queue.promised.append(msg_id)
    queue.prove()


def test_a_prepared_message_that_has_expired_stays_away(queue):
    msg_id = queue.prepare()
    queue.kill()
    long_ago = time.time() - 37 * 3600
    os.utime(queue.dir.path / "prep" / msg_id, (long_ago, long_ago))
    queue.start(crash_at="journal:written")
    assert queue.died()
    queue.start()
    wait_until(lambda: queue.places(msg_id) == [])
    queue.prove()


def test_what_a_hand_removed_after_a_crash_is_made_again_from_the_journal(queue):
    msg_id = queue.submit(due=4e9, param2="keep me")
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.kill()
    shutil.rmtree(queue.dir.path / "que" / msg_id)
    queue.start()
    shown = queue.show(msg_id)
    assert (shown["param2"], shown["rebuilt"]) == ("keep me", True)
    queue.prove()


def test_a_removal_cut_in_its_middle_is_carried_on(queue):
    msg_id = queue.submit(due=4e9)
    wait_until(lambda: queue.places(msg_id) == ["que"])
    queue.crash(
        "move:after-rename", lambda: queue.ask("delete_message", {"msg_id": msg_id})
    )
    (queue.dir.path / "gone" / msg_id / "msg").unlink()
    queue.start()
    wait_until(lambda: queue.places(msg_id) == [])
    queue.prove(gone=(msg_id,))
