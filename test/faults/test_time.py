"""Clocks that jump and processes that stand still: nothing is lost, run twice or silent."""

from __future__ import annotations

import os
import signal
import time

import pytest
from faults.clocks import DAY, HOUR, stop
from harness.kills import site_at
from harness.queues import short
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown

pytestmark = pytest.mark.process

LATER = 4e9


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("hold", "hold")
        yield site


# ---- clocks


def test_a_clock_that_jumps_ahead_makes_due_what_it_passes(site, clock):
    queue = site.queue().start(TEST_TICK="0.2", **clock.env)
    soon = queue.submit(due=time.time() + HOUR)
    late = queue.submit(due=time.time() + 3 * DAY)
    assert queue.state(soon) == "que"
    clock.set(2 * HOUR)
    queue.until(soon, "done", 30)
    assert queue.state(late) == "que"
    queue.prove()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [{}, {"max": 100, "wait": 3}], ids=["", "batch"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_put_back_holds_up_nobody_whose_turn_it_was(
    site, clock, restarted, batch
):
    site.act("again", '[ "$RQ_COUNT" -ge 1 ] || { echo "resend 3-a" >&3; exit 0; }')
    queue = site.queue(num_workers=1, batch=batch)
    queue.start(TEST_TICK="0.2", **clock.env)
    again = queue.submit("again")
    if not batch:
        wait_until(lambda: queue.show(again)["count"] == 1, 30)
    queue.pause()
    at_once = [queue.submit() for _ in range(3)]
    chosen = queue.submit(due=time.time() + DAY)
    clock.set(-30 * DAY)
    if restarted:
        queue.restart()
    else:
        wait_until(lambda: "the clock of this machine was set" in queue.log(), 30)
    queue.resume()
    for msg_id in [*at_once, again]:
        queue.until(msg_id, "done", 30)
    assert queue.state(chosen) == "que"
    queue.prove()


@pytest.mark.parametrize("crashed", [False, True])
def test_a_clock_that_is_put_back_holds_up_no_message_whose_attempt_is_lost(
    site, clock, crashed
):
    queue = site.queue().start(TEST_TICK="0.2", **clock.env)
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    clock.set(-DAY)
    wait_until(lambda: "the clock of this machine was set" in queue.log(), 30)
    if crashed:
        queue.kill()
    else:
        queue.stop()
    queue.start(TEST_TICK="0.2", **clock.env)
    site.go()
    queue.until(msg_id, "done", 30)
    queue.prove()


@pytest.mark.parametrize("taken", [False, True])
def test_a_clock_that_is_put_back_holds_up_no_message_whose_lease_is_over(
    site, clock, taken
):
    queue = site.queue(num_workers=0, pull={"seconds": 1})
    queue.start(TEST_TICK="0.2", **clock.env)
    msg_id = queue.submit()
    [lease] = queue.ok("lease", {"count": 1})["leases"]
    queue.ok("start", {"tokens": [lease["token"]]})
    clock.set(-DAY)
    wait_until(lambda: "the clock of this machine was set" in queue.log(), 30)
    if taken:
        queue.ok("release", {"tokens": [lease["token"]]})
    queue.until(msg_id, "que", 30)
    [lease] = queue.ok("lease", {"count": 1})["leases"]
    finish = {"token": lease["token"], "word": "done"}
    queue.ok("finish", {"finishes": [finish]})
    queue.until(msg_id, "done", 30)
    queue.prove()


def test_a_clock_that_is_put_back_holds_up_no_script_that_is_mended(site, clock):
    queue = site.queue().start(TEST_TICK="0.2", **clock.env)
    program = site.root.path / "t.script"
    program.rename(program.with_suffix(".gone"))
    msg_id = queue.submit()
    wait_until(lambda: "SCRIPTERROR" in queue.log(), 30)
    clock.set(-DAY)
    wait_until(lambda: "the clock of this machine was set" in queue.log(), 30)
    program.with_suffix(".gone").rename(program)
    queue.until(msg_id, "done", 30)
    queue.prove()


@pytest.mark.parametrize("jump", [-DAY, DAY, -40 * 365 * DAY, 60 * 365 * DAY])
def test_ids_stay_unique_and_new_messages_run_however_the_clock_jumps(
    site, clock, jump
):
    queue = site.queue(num_workers=2).start(TEST_TICK="0.2", **clock.env)
    running = queue.submit("hold")
    queue.until_started(running)
    before = [queue.submit(due=LATER) for _ in range(3)]
    clock.set(jump)
    after = [queue.submit() for _ in range(3)]
    for msg_id in after:
        queue.until(msg_id, "done", 30)
    site.go()
    queue.until(running, "done", 30)
    assert len({running, *before, *after}) == 7
    wait_until(lambda: any(one["ev"] == "clock" for one in queue.events()), 30)
    clock.set(0)
    queue.until(queue.submit(), "done", 30)
    queue.prove()


@pytest.mark.parametrize("jump", [8 * DAY, -30 * DAY])
def test_a_decision_is_not_forgotten_while_the_clock_is_wrong(site, clock, jump):
    queue = site.queue().start(TEST_TICK="0.2", **clock.env)
    txn = queue.ok("open_txn", {"key": "k"})["txn"]
    ids = queue.ok("prepare_txn", {"txn": txn, "messages": [{}]})
    queue.promised += ids
    queue.ok("commit_txn", {"txn": txn, "ids": ids})
    for number, ahead in enumerate((jump, 0), 1):
        clock.set(ahead)
        wait_until(lambda n=number: _jumps(queue) == n, 30)
    again = queue.ok("open_txn", {"key": "k"})  # whoever has not heard sends again
    assert (again["txn"], again["state"]) == (txn, "committed")
    queue.until(ids[0], "done", 30)
    queue.prove()


def test_a_start_with_a_clock_that_is_ahead_makes_nothing_old(site, clock):
    queue = site.queue().start()
    sent = queue.ok("create_message", {"dest": "t", "_key": "k"})
    queue.promised.append(short(sent))
    txn = queue.ok("open_txn", {"key": "k"})["txn"]
    held = queue.ok("open_txn", {"key": "held"})["txn"]
    queue.ok("commit_txn", {"txn": txn, "ids": []})
    made = short(queue.ok("prep_message", {"dest": "t"}))
    clock.set(40 * DAY)
    queue.kill()
    queue.start(TEST_TICK="0.2", **clock.env)
    assert queue.ok("create_message", {"dest": "t", "_key": "k"}) == sent
    wait_until(lambda: "nothing expires for an hour" in queue.log(), 30)
    queue.restart()  # the clock has been put right
    again = queue.ok("open_txn", {"key": "k"})
    assert (again["txn"], again["state"]) == (txn, "committed")
    assert queue.ok("show_txn", {"txn": held})["state"] == "open"
    assert queue.state(made) == "prep"
    queue.ok("delete_message", {"msg_id": made})
    queue.until(short(sent), "done", 30)
    queue.prove()


def _jumps(queue):
    return sum(one["ev"] == "clock" for one in queue.events())


def test_a_crash_after_a_jump_back_gives_no_id_again(site, clock):
    queue = site.queue().start(**clock.env)
    ids = [queue.submit(due=LATER) for _ in range(20)]
    clock.set(-HOUR)
    queue.restart()
    ids += [queue.submit(due=LATER) for _ in range(20)]
    assert len(set(ids)) == 40
    assert queue.ids() == sorted(ids)
    queue.prove()


def test_a_door_that_cannot_be_looked_at_keeps_no_chore_from_its_turn(site, clock):
    queue = site.queue().start(TEST_TICK="0.2", **clock.env)
    queue.submit(due=LATER)
    door = queue.dir.path / "new"
    door.rmdir()
    door.write_text("no directory")
    wait_until(lambda: "new/ cannot be looked at" in queue.log(), 30)
    clock.set(2 * HOUR)  # the journal is sealed by the hour
    wait_until(lambda: list(queue.dir.history.glob("*/*.jsonl")), 30)
    door.unlink()
    door.mkdir()
    queue.prove()


# ---- processes that stand still


def test_who_asks_a_queue_that_stands_still_is_told_in_time(site):
    queue = site.queue(num_workers=2).start()
    running = queue.submit("hold")
    queue.until_started(running)
    stop(queue.process.pid)
    asked = {"dest": "t", "_key": "cafe/1/0"}
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="did not answer in time"):
        queue.ask("create_message", asked, timeout=1.0)
    assert time.monotonic() - began < 20
    site.go()  # its script ends while nobody watches
    wait_until(lambda: site.ran("end", running), 20)
    os.kill(queue.process.pid, signal.SIGCONT)
    queue.until(running, "done", 30)
    # Asked again with its key it is the same message, whether it had been read or not.
    again = short(queue.ok("create_message", asked))
    queue.promised.append(again)
    queue.until(again, "done", 30)
    assert [len(site.ran("start", one)) for one in (running, again)] == [1, 1]
    assert len(queue.ids()) == 2
    queue.prove()


@pytest.fixture
def daemon(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.start()
        for name in ("still", "busy"):
            daemon.create(name)
        yield daemon


@pytest.mark.slow
def test_a_queue_that_stands_still_is_waited_for_and_hinders_no_other(daemon):
    pid = daemon.child("still")["pid"]
    stop(pid)
    for _ in range(5):
        reply = daemon.ask_queue("busy", "create_message", {"dest": "busy"})
        assert reply[0] == "ok"
        assert daemon.child("still")["pid"] == pid
    wait_until(lambda: daemon.ask_queue("busy", "num_messages")["done"] == 5, 30)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: daemon.ask_queue("still", "ping") == ["pong"], 30)
    assert daemon.child("still")["restarts"] == 0
    assert daemon.stop() == 0


def test_queues_serve_while_their_supervisor_stands_still(daemon):
    stop(daemon.process.pid)
    for name in ("still", "busy"):
        assert daemon.ask_queue(name, "create_message", {"dest": name})[0] == "ok"
    os.kill(daemon.process.pid, signal.SIGCONT)
    for name in ("still", "busy"):
        wait_until(lambda n=name: daemon.ask_queue(n, "num_messages")["done"] == 1, 30)
    assert daemon.ask("ping") == ["pong"]
    assert daemon.stop() == 0
