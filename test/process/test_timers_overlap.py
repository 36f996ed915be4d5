"""A timer whose earlier message has not ended."""

import json
import time

import pytest
from harness.kills import site_at
from harness.timers import past, sent, timers, write
from harness.waiting import wait_until

from rq.timers import fires
from rq.timers.rows import Missed, rows_of
from rq.timers.sending import place_of as place

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.queue("q", num_workers=4).start()
        (site.root.path / "timers").mkdir()
        site.act("hold", "hold")
        yield site


def first_runs(site, **settings):
    """Fire a timer whose message runs until it is let go; return the message's id."""
    write(site, param1="hold", **settings)
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
    msg_id = place(past(site)["fires"][0]["msg"])[1]
    site.queues["q"].until_started(msg_id)
    return msg_id


def due_again(site):
    """Let the time of the next fire have come."""
    saved = {**past(site), "last": time.time() - 90000}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": saved}}))


def misses(site):
    lines = fires.read(site.root.timers_fires)
    return [row for row in rows_of(lines, "daily") if isinstance(row, Missed)]


def test_skip_leaves_a_fire_out_while_the_earlier_message_runs_and_says_so(site):
    first = first_runs(site, overlap="skip")
    due_again(site)
    with timers(site):
        said = f"skipped: {first} has not ended"
        wait_until(lambda: past(site).get("result") == said, 60)
        wait_until(lambda: misses(site), 60)
    assert sent(site) == 1
    assert [one["outcome"] for one in past(site)["fires"]] == ["run", ""]
    [row] = misses(site)
    assert (row.span.count, row.why, row.text) == (1, "overlap", said)
    site.go()
    site.queues["q"].until(first, "done")
    due_again(site)
    with timers(site):
        wait_until(lambda: sent(site) == 2, 60)
        wait_until(lambda: past(site)["result"].startswith("sent"), 60)
    assert past(site)["fires"][0]["outcome"] == "done"


def test_queue_sends_it_all_the_same(site):
    first = first_runs(site, overlap="queue")
    due_again(site)
    with timers(site):
        wait_until(lambda: sent(site) == 2, 60)
    assert site.queues["q"].state(first) == "run"
    site.go()


def test_replace_ends_the_earlier_message_before_it_sends_the_next(site):
    site.act("hold", "trap '' TERM\nhold")  # so its end takes a while
    first = first_runs(site, overlap="replace")
    due_again(site)
    with timers(site):
        wait_until(lambda: sent(site) == 2, 60)
        wait_until(lambda: len(past(site)["fires"]) == 2, 60)
    queue = site.queues["q"]
    assert queue.state(first) == "err"
    assert "cancelled by timer daily" in json.dumps(queue.show(first))
    second = place(past(site)["fires"][1]["msg"])[1]
    queue.until_started(second)
    # Its script was started when nothing of the first was left.
    assert not site.ran("overlap")
    ends = [line for line in queue.events(first) if line["ev"] == "fail"]
    claims = [line for line in queue.events(second) if line["ev"] == "claim"]
    assert ends[0]["seq"] < claims[0]["seq"]
    site.go()
    queue.until(second, "done")


def test_replace_does_not_remove_a_message_for_itself_when_the_clock_is_put_back(site):
    # The fire of an hour comes twice then, and its key names the message of the first.
    site.queues["q"].pause()
    hour = time.time() // 3600 * 3600
    state = {"rule": "0 * * * * UTC", "over": hour - 60}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": state}}))
    write(site, cron="0 * * * *", overlap="replace")
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
    first = site.queues["q"].ids()
    put_back = {**past(site), "last": hour - 60, "over": hour - 60, "result": ""}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": put_back}}))
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
    assert site.queues["q"].ids() == first
    assert len(first) == 1
    assert [one["nominal"] for one in past(site)["fires"]] == [hour]


def test_replace_removes_one_that_waits(site):
    site.queues["q"].pause()
    write(site, overlap="replace")
    with timers(site):
        wait_until(lambda: past(site).get("result", "").startswith("sent"), 60)
    first = place(past(site)["fires"][0]["msg"])[1]
    due_again(site)
    with timers(site):
        wait_until(lambda: len(past(site)["fires"]) == 2, 60)
    ids = site.queues["q"].ids()
    assert len(ids) == 1
    assert first not in ids
