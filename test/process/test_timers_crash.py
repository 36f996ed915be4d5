"""A timer's process that is killed between any two of its writes: each fire sends one
message."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.kills import site_at
from harness.waiting import wait_until

from rq import client, config

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.queue("q").start()
        (site.root.path / "timers").mkdir()
        yield site


@contextlib.contextmanager
def timers(site, crash_at=""):
    """Run the timers of a root, without a supervisor."""
    here = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": here, "RQ_CRASH_AT": crash_at}
    told = [sys.executable, "-m", "rq.timers", "--root", str(site.root.path)]
    with (site.root.log / "timers.stderr").open("ab") as stderr:
        process = subprocess.Popen(told, env=env, stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def write(site, name="daily", period=86400, **fields):
    path = site.root.timers / f"{name}.json"
    path.write_text(json.dumps({"period": period, "msg": {"dest": "q", **fields}}))


def past(site, name="daily"):
    with contextlib.suppress(Exception):
        return config.read_json(site.root.timers_state)["timers"][name]
    return {}


def sent(site):
    """Return the ids of all messages that the queue has ever accepted."""
    counts = site.queues["q"].ask("num_messages")
    return sum(counts[state] for state in ("que", "run", "done", "err"))


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_kill_at_each_write_of_the_state_doubles_and_loses_nothing(site, nth, place):
    write(site)
    with timers(site, f"durable:{place}-rename#{nth}") as process:
        assert process.wait(60) == -signal.SIGKILL
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
    assert sent(site) == 1
    assert past(site).get("begun") is None


def test_the_fires_after_a_kill_are_other_messages(site):
    write(site, period=60)
    with timers(site, "durable:before-rename#3") as process:
        assert process.wait(60) == -signal.SIGKILL
    begun = past(site)["begun"]
    site.root.timers_state.write_text(
        json.dumps({"timers": {"daily": {"last": begun - 3600, "begun": begun - 3540}}})
    )
    with timers(site):
        wait_until(lambda: sent(site) == 2, 60)
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)


def test_an_answer_that_was_lost_is_asked_for_again_and_not_a_period_later(site):
    write(site)
    queue = site.queues["q"]
    # It dies when it has made the message durable, and has not said so.
    queue.arm("journal:after-sync")
    with timers(site):
        assert queue.died()
        queue.start()
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
    assert sent(site) == 1


def test_a_timers_message_has_all_fields_and_a_wrong_one_says_so(site):
    hook = "http://127.0.0.1:1/x"
    write(site, src="cron", max_count=2, post_run_webhook=[hook], colour="red")
    write(site, "wrong", delay=60)
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
        shown = client.ask_timers(site.root.timers_socket, "status")[1]
    message = site.queues["q"].show(past(site)["result"].rpartition("/")[2])
    wanted = {"src": "cron", "max_count": 2, "post_run_webhook": [hook]}
    assert {**message, **wanted, "colour": "red"} == message
    assert "'delay' is no field of a message: say due" in shown["errors"]["wrong.json"]
    assert sent(site) == 1
