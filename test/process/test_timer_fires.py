"""What became of a timer's fires, as a person sees it, and what is said until they have."""

import json
import time
from types import SimpleNamespace

import pytest
from harness.cli import rq
from harness.index import Lines, fill, message_id
from harness.kills import site_at
from harness.post import Post, notice_queue
from harness.queues import kept, running_queue
from harness.timers import past, timers, write
from harness.waiting import wait_until

from rq import config
from rq.layout import Root
from rq.rpc import client

pytestmark = pytest.mark.process

HOUR = 3600.0
HOURLY = "0 * * * *"


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.queue("q").start()
        (site.root.path / "timers").mkdir()
        yield site


def state(site, **saved):
    """Let a timer that fires each hour have done something before."""
    known = {"rule": f"{HOURLY} UTC", **saved}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": known}}))


def troubles(site):
    return config.read_json(site.root.timers_state).get("troubles", {})


def row(site):
    [only] = client.ask_timers(site.root.timers_socket, "status")[1]["timers"]
    return only


def verb(site, *words):
    done = rq("timer", *words, root=site.root.path)
    assert "Traceback" not in done.stderr
    return done


def this_hour():
    """Return when the hour began; never one that is about to end."""
    now = time.time()
    return now // HOUR * HOUR


@pytest.mark.slow
def test_a_job_that_fails_is_not_called_sent(site):
    site.act("full", "echo err no space >&3; exit 0")
    write(site, param1="full")
    with timers(site):
        wait_until(lambda: troubles(site).get("daily", {}).get("failed"), 60)
        listed = verb(site, "ls").stdout.splitlines()[1]
        assert " err " in listed
        assert listed.endswith("the last failed: no space")
        shown = verb(site, "show", "daily").stdout
        assert "trouble:      the last failed: no space (`rq timer ack`)" in shown
        assert "last success: none" in shown
        said = verb(site, "ack", "daily").stdout
        assert said == "timer daily is acknowledged\n"
        assert troubles(site) == {}
        assert row(site)["outcome"] == "err"
        verb(site, "run", "daily")
        wait_until(lambda: troubles(site).get("daily", {}).get("failed"), 60)
        assert verb(site, "ack", "--all").stdout == said
        assert verb(site, "ack", "--all").stdout == ""
        assert verb(site, "ack").returncode == 2


def test_a_job_that_waits_says_for_what(site):
    site.queues["q"].pause()
    write(site, param1="full")
    with timers(site):
        wait_until(lambda: row(site)["outcome"] == "que", 60)
        shown = verb(site, "show", "daily").stdout
    assert "  The queue is paused" in shown, shown


@pytest.mark.slow
def test_an_error_that_is_acknowledged_in_its_queue_or_ends_well_is_no_trouble(site):
    site.act("full", "[ -e $RQ_ROOT/go ] || { echo err no space >&3; exit 0; }")
    write(site, param1="full")
    with timers(site):
        wait_until(lambda: troubles(site).get("daily"), 60)
        msg_id = past(site)["fires"][0]["msg"].rpartition("/")[2]
        queue = site.queues["q"]
        queue.ask("ack_message", {"msg_id": msg_id})
        wait_until(lambda: verb(site, "show", "daily") and troubles(site) == {}, 60)
        queue.ask("unack_message", {"msg_id": msg_id})
        wait_until(lambda: verb(site, "show", "daily") and troubles(site), 60)
        site.go()
        queue.ask("retry_message", {"msg_id": msg_id})
        queue.until(msg_id, "done")
        wait_until(lambda: verb(site, "show", "daily") and troubles(site) == {}, 60)
        assert row(site)["outcome"] == "done"
        assert row(site)["last_success"]


def test_what_was_missed_while_rq_was_down_is_said_until_a_person_has_seen_it(site):
    hour = this_hour()
    write(site, cron=HOURLY)
    state(site, over=hour - 5 * HOUR)
    with timers(site):
        wait_until(lambda: troubles(site).get("daily"), 60)
        wait_until(lambda: row(site)["outcome"] == "done", 60)
        assert " missed 4: RQ was down" in verb(site, "ls").stdout
        shown = verb(site, "show", "daily").stdout
        assert " missed 4 " in shown
        assert " done " in shown
        status = rq("status", root=site.root.path).stdout
        assert "RQ is not running" in status  # its supervisor passes the state on
        verb(site, "ack", "daily")
        assert row(site)["trouble"] is None
    with timers(site):
        wait_until(lambda: row(site)["outcome"] == "done", 60)
        assert row(site)["trouble"] is None
        assert row(site)["missed"] == 0


def test_without_a_process_the_fires_are_read_from_their_file(site):
    write(site)
    with timers(site):
        wait_until(lambda: row(site)["outcome"] == "done", 60)
        wait_until(lambda: past(site).get("last"), 60)
        known = row(site)["last_success"]
    [listed] = json.loads(verb(site, "ls", "--json").stdout)
    assert (listed["outcome"], listed["last_success"]) == ("done", known)


@pytest.mark.parametrize("catch_up", ["last", "none", "all"])
def test_what_was_due_while_a_timer_was_paused_is_counted_and_no_trouble(
    site, catch_up
):
    hour = this_hour()
    write(site, cron=HOURLY, catch_up=catch_up)
    state(site, over=hour - 3 * HOUR, paused=hour - 3 * HOUR)
    with timers(site):
        wait_until(lambda: row(site)["paused"], 60)
        verb(site, "resume", "daily")
        view = json.loads(verb(site, "show", "daily", "--json").stdout)
    [miss] = view["misses"]
    assert (miss["count"], miss["why"], miss["from"]) == (3, "paused", hour - 2 * HOUR)
    assert view["trouble"] is None


@pytest.mark.parametrize(("catch_up", "count"), [("last", 3), ("none", 4), ("all", 0)])
def test_what_a_timer_does_not_make_up_for_is_missed_for_the_reason_of_its_last_try(
    site, catch_up, count
):
    hour = this_hour()
    write(site, cron=HOURLY, catch_up=catch_up)
    said = "there is no queue 'q'"
    tried = {"failures": 3, "tried": time.time() - 30, "why": "no queue", "error": said}
    state(site, over=hour - 4 * HOUR, **tried)
    with timers(site):
        wait_until(lambda: row(site)["result"].startswith(("sent", "skipped")), 60)
        view = json.loads(verb(site, "show", "daily", "--json").stdout)
    told = [(miss["count"], miss["why"], miss["text"]) for miss in view["misses"]]
    assert told == ([(count, "no queue", said)] if count else [])


def test_a_success_that_does_not_come_is_told_once_and_its_coming_too(tmp_path):
    post = Post(tmp_path)
    place = SimpleNamespace(root=Root(tmp_path))
    place.root.timers.mkdir()
    place.root.log.mkdir(exist_ok=True)
    path = place.root.timers / "daily.json"
    message = {"dest": "t", "param1": "echo done >&3"}
    rule = {"cron": "0 0 1 1 *", "expect": {"within": "26h"}}
    path.write_text(json.dumps({**rule, "msg": message}))
    known = {"rule": "0 0 1 1 * UTC", "over": time.time(), "expected": 1000.0}
    place.root.timers_state.write_text(json.dumps({"timers": {"daily": known}}))
    with (
        kept(notice_queue(tmp_path)),
        running_queue(tmp_path, name="t", on_err="ops@example.org"),
    ):
        with timers(place):
            wait_until(post.raw, 60)
            assert troubles(place)["daily"]["overdue"] == 1000.0
            wait_until(lambda: past(place).get("is_told"), 60)
        with timers(place):
            wait_until(lambda: row(place), 60)
            assert "(`rq timer run`)" in verb(place, "show", "daily").stdout
            assert verb(place, "run", "daily").stdout
            wait_until(lambda: len(post.raw()) == 2, 60)
            wait_until(lambda: troubles(place) == {}, 60)
    late, again = post.letters()
    assert late["Subject"].endswith(
        "t: timer daily has not succeeded when it should have"
    )
    assert "none has come since 1970-01-01 00:16:40 UTC" in late.get_content()
    assert again["Subject"].endswith("t: timer daily succeeds again")


@pytest.mark.parametrize("is_read", [True, False])
def test_a_letter_each_morning_says_once_what_ran_what_failed_and_what_did_not(
    tmp_path, is_read
):
    due = time.time() - 100
    at = time.strftime("%H:%M", time.gmtime(due))
    daily = {"at": at, "timezone": "UTC", "to": "mail:ops@example.org"}
    root = Root(tmp_path)
    post = Post(tmp_path, daily=daily, **({} if is_read else {"index": False}))
    if is_read:
        ran = Lines("etl", time.time() - HOUR)
        for number in range(3):
            ran.accept(message_id(number))
            (ran.fail if number else ran.run)(message_id(number))
        fill(root, ran)
    place = SimpleNamespace(root=root)
    for folder in (root.timers, root.log):
        folder.mkdir(exist_ok=True)
    data = {"cron": HOURLY, "msg": {"dest": "t", "param1": "echo done >&3"}}
    (root.timers / "daily.json").write_text(json.dumps(data))
    root.daily_letter.write_text(json.dumps({"sent": due - 86400}))
    state(place, over=this_hour() - 4 * HOUR)
    with kept(notice_queue(tmp_path)) as notices, running_queue(tmp_path, name="t"):
        for _ in range(2):
            with timers(place):
                wait_until(post.raw, 60)
                wait_until(
                    lambda: config.read_json(root.daily_letter)["sent"] >= due - 60
                )
            known = root.daily_letter.read_text()
            root.daily_letter.write_text(json.dumps({"sent": due - 86400}))
        assert notices.ask("num_messages")["done"] == 1
    assert json.loads(known)["sent"] % 60 == 0
    [letter] = post.letters()
    body = letter.get_content()
    assert letter["To"] == "ops@example.org"
    assert "the last day: " in letter["Subject"]
    assert "Missed fires (`rq timer ls`):\n  daily: 3, " in body
    assert "The disk has " in body
    if is_read:
        assert "3 runs in the last day, 2 failed." in body
        assert "2 failed and not acknowledged (`rq failures`):" in body
        assert "  2 x status # (etl), the last at " in body
    else:
        assert "What ran and what failed is not known: the index is off" in body


def test_an_expectation_that_cannot_be_is_refused(site):
    for wrong in (
        "26h",
        {"within": 1},
        {"within": "x"},
        {"in": "26h"},
        {"within": True},
    ):
        path = site.root.path / "daily.json"
        data = {"period": 86400, "expect": wrong, "msg": {"dest": "q"}}
        path.write_text(json.dumps(data))
        done = verb(site, "validate", path)
        assert "'expect' is " in done.stderr, wrong
        assert done.returncode == 1
