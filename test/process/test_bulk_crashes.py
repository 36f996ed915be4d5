"""kill -9 of the owner while a bulk is at work: it goes on behind the last message that
it has changed, changes each once, and leaves nothing behind."""

import time
from collections import Counter

import pytest
from harness.extent import rotated
from harness.kills import site_at
from harness.spool import Owner
from harness.waiting import wait_until

from rq.words.states import Event, Role

pytestmark = pytest.mark.process
MANY = 1100  # two batches of a bulk


@pytest.fixture
def queue(tmp_path):
    """A queue that is paused, with many messages in err, just before its start."""
    with site_at(tmp_path / "root") as site:
        queue = site.queue()
        owner = Owner(site.root.path, time.time, "t")
        spool = owner.open()
        facts = {"cause": "bad_message", "text": "of a test", "outcome": "err"}
        for _ in range(MANY):
            msg_id = owner.submit(dest="t", count=3)
            spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
            queue.promised.append(msg_id)
            spool.commit_when_full()
        owner.apply()
        owner.stop()
        site.root.pause("t").touch()
        yield queue.start()


def begin(queue, action):
    return queue.ask("bulk", {"action": action, "filter": {"state": "err"}})


def shown(queue):
    [view] = queue.ok("list_bulks")
    return view


def ended(queue):
    return wait_until(lambda: (view := shown(queue))["state"] != "open" and view, 60)


def lists(queue):
    return [path.name for path in queue.dir.journal.glob("*bulk-*")]


def changed(queue, event):
    """Return how many lines of the journal say so of each message."""
    lines = [line for line in queue.events() if line["ev"] == event]
    return Counter(line["msg"] for line in lines)


# Written or synced is the tenth group, of some dozens of messages each.
LATE = ["journal:before-write#10", "journal:written#10", "journal:after-sync#10"]
POINTS = ["journal:after-sync", *LATE, "journal:written#3"]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_it_goes_on_and_changes_each_message_once(queue, point):
    queue.crash(point, lambda: begin(queue, "retry") and wait_for_the_end(queue))
    before = changed(queue, "requeue")
    queue.start()
    view = ended(queue)
    assert (view["state"], view["messages"], view["changed"]) == ("done", MANY, MANY)
    assert changed(queue, "requeue") == Counter(queue.promised)
    assert before.keys() < set(queue.promised)
    assert queue.ask("num_messages")["que"] == MANY
    assert queue.show(queue.promised[0])["count"] == 0
    wait_until(lambda: lists(queue) == [])
    queue.prove()


def wait_for_the_end(queue):
    wait_until(lambda: queue.process.poll() is not None)


@pytest.mark.parametrize("action", rotated(["ack", "delete"]))
def test_each_action_goes_on(queue, action):
    queue.crash(
        "journal:written#10", lambda: begin(queue, action) and wait_for_the_end(queue)
    )
    queue.start()
    assert ended(queue)["changed"] == MANY
    event = {"ack": "dismiss", "delete": "discard"}[action]
    assert changed(queue, event) == Counter(queue.promised)
    queue.prove(gone=tuple(queue.promised) if action == "delete" else ())


@pytest.mark.slow
def test_what_is_moved_arrives_once(queue):
    """Whatever of the move, or of the delivery, the kill comes after."""
    other = queue.site.queue("other").start()
    asked = {"action": "move", "filter": {"state": "err"}, "to": "other"}
    queue.crash(
        "journal:written#12",
        lambda: queue.ask("bulk", asked) and wait_for_the_end(queue),
    )
    queue.start()
    assert ended(queue)["changed"] == MANY
    assert changed(queue, "move") == Counter(queue.promised)
    wait_until(lambda: queue.ok("owed", {}) == [], 60)
    came = [line["message"] for line in other.events() if line["ev"] == "commit"]
    origins = Counter(message["orig_msg_id"].rpartition("/")[2] for message in came)
    assert origins == Counter(queue.promised)
    queue.prove()


def test_a_list_without_its_line_has_no_effect(queue):
    queue.crash("bulk:listed", lambda: begin(queue, "delete"))
    assert len(lists(queue)) == 1
    queue.start()
    assert queue.ok("list_bulks") == []
    assert lists(queue) == []
    assert queue.ask("num_messages")["err"] == MANY
    queue.prove()


@pytest.mark.slow
def test_an_end_is_an_end_and_its_list_goes(queue):
    queue.crash(
        "bulk:before-drop", lambda: begin(queue, "ack") and wait_for_the_end(queue)
    )
    assert len(lists(queue)) == 1
    queue.start()
    assert shown(queue)["state"] == "done"
    wait_until(lambda: lists(queue) == [])
    queue.prove()


@pytest.mark.slow
def test_a_clean_stop_interrupts_it_and_the_next_start_goes_on(queue):
    """What a checkpoint tells of it, and no line of the journal after that."""
    begin(queue, "retry")
    assert queue.stop() == 0
    before = changed(queue, "requeue")
    queue.start()
    assert ended(queue)["changed"] == MANY
    assert changed(queue, "requeue") == Counter(queue.promised)
    assert before.keys() < set(queue.promised)
    queue.prove()


def test_a_bulk_that_was_cancelled_does_not_go_on(queue):
    bulk = begin(queue, "ack")[1]["bulk"]
    queue.ok("cancel_bulk", {"bulk": bulk})
    queue.restart()
    view = shown(queue)
    assert view["state"] == "cancelled"
    assert sum(changed(queue, "dismiss").values()) == view["changed"] < MANY
    queue.prove()


def test_a_list_that_is_lost_ends_its_bulk(queue):
    begin(queue, "ack")
    queue.kill()
    [path] = queue.dir.journal.glob("bulk-*")
    path.write_bytes(path.read_bytes()[:-40])
    queue.start()
    view = ended(queue)
    assert view["state"] == "failed"
    assert "is not the list that it began with" in view["why"]
    wait_until(lambda: lists(queue) == [])
    queue.prove()
