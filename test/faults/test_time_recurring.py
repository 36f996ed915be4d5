"""What recurs by the wall clock when that jumps: timers, and the removal of what is old."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime

import pytest
from faults.clocks import DAY, HOUR, stop
from harness.queues import RunningQueue
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.rpc import client

pytestmark = pytest.mark.process

YEAR = 365 * DAY
PERIOD = 6 * HOUR
PASSED = PERIOD + 600  # seconds after which a timer is due, even of a slow machine
PATIENCE = 30


# ---- timers


@pytest.fixture
def daemon(tmp_path, clock):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.env = clock.env
        daemon.start()
        asked = {"name": "q", "script": str(daemon.script), "exec_prefix": ""}
        assert daemon.ask("create_queue", asked)[0] == "success"
        daemon.until_up("timers", PATIENCE)
        daemon.until_up("q", PATIENCE)
        path = daemon.root.timers / "t.json"
        path.write_text(json.dumps({"period": PERIOD, "msg": {"dest": "q"}}))
        yield daemon


def is_settled(daemon, ahead, fired):
    """Whether the timer has fired so often in all, and its period has begun anew."""
    word, status = client.ask_timers(daemon.root.timers_socket, "status")
    assert word == "ok"
    [row] = status["timers"]
    ago = time.time() + ahead - (row["last"] or 0)
    return -1 < ago < 600 and daemon.messages("q") == fired


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_timer_fires_once_after_each_jump_and_goes_on(daemon, clock, killed):
    def jump(ahead, fired, kill=False):
        clock.set(ahead)
        if kill:
            daemon.kill("timers")
            daemon.until_up("timers", PATIENCE)
        wait_until(lambda: is_settled(daemon, ahead, fired), PATIENCE)

    wait_until(lambda: is_settled(daemon, 0, 1), PATIENCE)
    jump(10 * YEAR, 2, killed)  # of all that it missed it sends one
    jump(10 * YEAR + PASSED, 3)
    jump(0, 3, killed)  # it waits no longer than its period, and sends nothing twice
    jump(PASSED, 4)
    jump(-10 * YEAR, 4)
    jump(-10 * YEAR + PASSED, 5)
    assert daemon.child("q")["restarts"] == 0
    assert daemon.stop() == 0


# ---- the removal of what is old


@pytest.fixture
def queue(tmp_path, clock):
    queue = RunningQueue(tmp_path / "root", "t", "obey")
    queue.configure(retention={"done": {"days": 7}})
    queue.env = dict(clock.env)
    try:
        yield queue
    finally:
        queue.kill()


def done(queue):
    return queue.run(PATIENCE, param1="echo done >&3")["msg_id"]


def there(queue, ids):
    return [queue.ask("get_message_state", {"msg_id": one})[0] == "ok" for one in ids]


def test_what_is_young_stays_wherever_the_clock_has_been(queue, clock):
    queue.start()
    ids = []
    for ahead in (0, -YEAR, 6 * DAY, 0):
        clock.set(ahead)
        ids.append(done(queue))
        assert queue.ok("expire", {})["expired"] == 0
    assert there(queue, ids) == [True] * 4
    clock.set(8 * DAY)
    assert queue.ok("expire", {})["expired"] == 2
    assert there(queue, ids) == [False, False, True, True]  # ids do not go back
    clock.set(14 * DAY)
    assert queue.ok("expire", {})["expired"] == 2
    clock.set(0)
    queue.close()


@pytest.mark.slow
def test_after_a_jump_of_the_clock_nothing_is_removed_for_an_hour(queue, clock):
    hour = 4.0
    queue.env["TEST_HOUR"] = str(hour)
    queue.start()
    old = done(queue)
    stop(queue.pid)  # so that its hour is over when it notices the jump
    clock.set(30 * DAY)
    until = time.monotonic() + hour + 1
    wait_until(lambda: time.monotonic() > until, PATIENCE)
    os.kill(queue.pid, signal.SIGCONT)
    wait_until(lambda: there(queue, [old]) == [False], PATIENCE)
    wait_until(lambda: "retention: removed=1" in queue.log(), PATIENCE)
    stepped, removed = (
        logged(queue, one) for one in ("the clock of this machine was set", "removed=1")
    )
    assert removed - stepped > 0.9 * hour
    clock.set(0)
    queue.close()


def logged(queue, text):
    """Return when a line was written, by the queue's clock."""
    [line] = [one for one in queue.log().splitlines() if text in one]
    return datetime.fromisoformat(line.split()[1]).timestamp()
