"""The process of the index, with a real supervisor and real queues."""

import contextlib
import json
import os
import random
import time
import uuid

import pytest
from harness.waiting import wait_until

from rq.index import schema, word
from rq.index.questions import Index
from rq.index.rows import RunsQuestion, SearchQuestion
from rq.words.states import State

pytestmark = pytest.mark.process

# Of five messages one fails, and one waits for good.
SCRIPT = """#!/bin/sh
case "$RQ_PARAM1" in
*bad*) echo "err no such order $RQ_PARAM1" >&3 ;;
*) echo "done ok" >&3 ;;
esac
"""


@pytest.fixture
def running(daemon):
    settings = json.loads(daemon.root.config.read_text())
    daemon.root.config.write_text(json.dumps({**settings, "index": True}))
    daemon.script.write_text(SCRIPT)
    daemon.start()
    daemon.until_up("index")
    return daemon


def send(daemon, queue, number, text):
    """Send messages, each once, however often its queue is killed; return their ids."""
    messages = [
        {"dest": queue, "param1": text, "_key": uuid.uuid4().hex} for _ in range(number)
    ]
    return [wait_until(lambda m=m: accepted(daemon, queue, m)) for m in messages]


def accepted(daemon, queue, message):
    word_, place = daemon.ask_queue(queue, "create_message", message)
    assert word_ == "ok", place
    return place.rpartition("/")[2]


def states(daemon, *words):
    """Return the state of each message that is found."""
    with Index.at(daemon.root) as index:
        question = SearchQuestion(words=words, limit=10_000)
        return {hit.msg_id: str(hit.state) for hit in index.search(question, None).rows}


def kill(daemon, name):
    with contextlib.suppress(ProcessLookupError):
        daemon.kill(name)


def test_it_follows_within_a_second(running):
    running.create("mail")
    wait_until(lambda: running.is_up("mail"))
    send(running, "mail", 1, "begin")
    wait_until(lambda: states(running, "begin"))
    (bad,) = send(running, "mail", 1, "bad-order")
    begun = time.monotonic()
    wait_until(lambda: states(running, "bad-order") == {bad: "err"})
    assert time.monotonic() - begun < 3  # of these the script has some
    with Index.at(running.root) as index:
        (group,) = index.failures(None, None)
    assert (group.count, group.sample) == (1, ("mail", bad))


def test_it_reads_what_was_said_while_it_was_away(running):
    """The owner has said its word to a process that was killed, and is idle now."""
    running.create("mail")
    wait_until(lambda: running.is_up("mail"))
    ids = send(running, "mail", 1, "before")
    wait_until(lambda: states(running, "before") == dict.fromkeys(ids, "done"))
    index = running.until_up("index")["pid"]
    schema.remove(running.root)
    kill(running, "index")
    wait_until(lambda: running.child("index")["pid"] not in (None, index))
    wait_until(lambda: states(running, "before") == dict.fromkeys(ids, "done"))


def test_a_deleted_queue_is_forgotten(running):
    running.create("mail")
    wait_until(lambda: running.is_up("mail"))
    send(running, "mail", 2, "order")
    wait_until(lambda: states(running, "order"))
    running.ask("delete_queue", "mail")
    wait_until(lambda: not states(running, "order"))


def test_it_is_made_again_when_asked(running):
    running.create("mail")
    wait_until(lambda: running.is_up("mail"))
    ids = send(running, "mail", 2, "order")
    wait_until(lambda: states(running, "order"))
    # While it is open, no other file gets its number.
    with schema.place(running.root).open("rb") as old:
        before = os.fstat(old.fileno()).st_ino
        assert word.ask_rebuild(running.root)
        wait_until(lambda: schema.place(running.root).stat().st_ino != before)
    wait_until(lambda: states(running, "order").keys() == set(ids))


def test_it_is_off_when_the_config_says_so(daemon):
    daemon.start()
    daemon.until_up("timers")
    assert "index" not in [child["name"] for child in daemon.children() if child["pid"]]


@pytest.mark.slow
def test_after_kills_it_says_what_has_happened(running):
    """A model keeps what was sent; owners and index are killed at random meanwhile."""
    model, rule = {}, random.Random(7)
    names = ("mail", "bank")
    for name in names:
        running.create(name, num_workers=2)
        wait_until(lambda name=name: running.is_up(name))
    for round_number in range(6):  # each kill of one lets its next start wait longer
        name = rule.choice(names)
        is_bad = rule.random() < 0.3
        text = f"{'bad' if is_bad else 'good'}-{round_number}"
        running.until_up(name)
        for msg_id in send(running, name, rule.randrange(1, 8), text):
            model[msg_id] = "err" if is_bad else "done"
        if round_number % 2:
            kill(running, rule.choice(("index", name)))
    wait_until(lambda: states(running) == model, 120)
    wait_until(lambda: runs_ended(running) >= model.keys())
    index = running.until_up("index")["pid"]
    schema.remove(running.root)
    kill(running, "index")
    wait_until(lambda: running.child("index")["pid"] not in (None, index))
    wait_until(lambda: states(running) == model, 120)


def runs_ended(daemon):
    """Return the messages of runs; each attempt is listed once."""
    with Index.at(daemon.root) as index:
        rows = index.runs(RunsQuestion(since=0, limit=10_000), None).rows
    attempts = [(run.msg_id, run.attempt) for run in rows]
    assert len(attempts) == len(set(attempts))
    return {run.msg_id for run in rows if run.outcome in (State.DONE, State.ERR)}
