"""A timer's process that is killed between any two of its writes: each fire sends one
message."""

import json
import signal
import time

import pytest
from harness.extent import rotated
from harness.kills import site_at
from harness.timers import past, sent, timers, write
from harness.waiting import wait_until

from rq.rpc import client
from rq.timers import fires, rows
from rq.timers.rows import Fired, Missed

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.queue("q").start()
        (site.root.path / "timers").mkdir()
        yield site


# All that is written first, the fires, the state and its journal; then what each fire
# appends: to the state that it is begun, its row, to the state that it was sent, and to
# its row how it ended.
WRITES = [
    *(
        f"durable:{place}-rename#{nth}"
        for nth in (1, 2, 3)
        for place in ("before", "after")
    ),
    *(
        f"journal:{place}-sync#{nth}"
        for nth in (1, 2, 3, 4)
        for place in ("before", "after")
    ),
    *(f"append:before-write#{nth}" for nth in (1, 2, 3, 4)),
]


@pytest.mark.parametrize("point", rotated(WRITES, 4))
def test_a_kill_at_each_write_of_the_state_doubles_and_loses_nothing(site, point):
    write(site)
    with timers(site, point) as process:
        assert process.wait(60) == -signal.SIGKILL
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
        wait_until(lambda: outcomes(site) == ["done"], 60)
    assert sent(site) == 1
    assert past(site).get("begun") is None
    numbers = [line["n"] for line in fires.read(site.root.timers_fires)]
    assert numbers == list(range(1, len(numbers) + 1))


def rows_of(site):
    return rows.rows_of(fires.read(site.root.timers_fires), "daily")


def outcomes(site):
    return [row.outcome.state for row in rows_of(site) if isinstance(row, Fired)]


def misses(site):
    return [
        (row.span.first, row.span.to, row.span.count, row.why)
        for row in rows_of(site)
        if isinstance(row, Missed)
    ]


# Here the state is there already when the first fire is due.
@pytest.mark.slow
@pytest.mark.parametrize("point", WRITES)
def test_a_kill_while_missed_fires_are_noted_counts_each_once(site, point):
    write(site, cron="0 * * * *")
    hour = time.time() // 3600 * 3600
    state = {"rule": "0 * * * * UTC", "over": hour - 5 * 3600}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": state}}))
    with timers(site, point) as process:
        assert process.wait(60) == -signal.SIGKILL
    with timers(site):
        wait_until(lambda: (past(site).get("last") or 0) >= hour, 60)
        wait_until(lambda: outcomes(site) == ["done"] * sent(site), 60)
    [(first, to, count, why)] = misses(site)
    assert (first, why) == (hour - 4 * 3600, "down")
    assert (to - first) / 3600 + 1 == count == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [*WRITES, *(f"journal:{p}-sync#{n}" for n in (5, 6) for p in ("before", "after"))],
)
def test_a_kill_while_fires_are_made_up_for_doubles_and_loses_none(site, point):
    write(site, cron="0 * * * *", catch_up="all")
    hour = time.time() // 3600 * 3600
    made_up = [hour - 7200, hour - 3600, hour]
    state = {"rule": "0 * * * * UTC", "over": hour - 3 * 3600}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": state}}))
    with timers(site, point) as process:
        assert process.wait(60) == -signal.SIGKILL
    with timers(site):
        wait_until(lambda: (past(site).get("last") or 0) >= hour, 60)
    nominals = [fire["nominal"] for fire in past(site)["fires"]]
    assert nominals[:3] == made_up
    assert sent(site) == len(nominals)  # one more when the hour has ended meanwhile


def test_the_fires_after_a_kill_are_other_messages(site):
    write(site, period=60)
    with timers(site, "append:before-write#2") as process:
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
