"""What runs before what: priorities, turns of keys, so many of a key at a time."""

import json
import re
import time

import pytest
from harness.extent import rotated
from harness.queues import running_queue
from harness.waiting import wait_until
from process.test_lease_schedule import finish, lease

from rq.words.states import State

pytestmark = pytest.mark.process
NOTE = """#!/bin/sh
echo "$RQ_MSG_ID" >> "$RQ_ROOT/order"
[ -z "$RQ_PARAM4" ] || until [ -e "$RQ_ROOT/$RQ_PARAM4" ]; do sleep 0.05; done
echo "done" >&3
"""


@pytest.fixture
def make(tmp_path):
    """Start a queue with the script above, paused."""
    with running_queue(tmp_path, NOTE, num_workers=1) as queue:
        queue.root.pause("t").touch()

        def made(**settings):
            queue.configure(**{"num_workers": 1, **settings})
            queue.ask("wake")
            return queue

        yield made


def resume(queue):
    queue.root.pause("t").unlink()
    queue.ask("wake")


def order(queue):
    path = queue.root.path / "order"
    return path.read_text().split() if path.exists() else []


def running(queue):
    return queue.ask("num_messages")["run"]


def test_those_that_are_due_run_by_priority_then_due_then_arrival(make):
    queue = make()
    now = time.time()
    plain = [queue.send(due=now - 5) for _ in range(2)]
    older = queue.send(due=now - 9)
    urgent = [queue.send(priority=9, due=now - n) for n in (1, 2)]
    some = queue.send(priority="4")
    later = queue.send(priority=9, due=now + 900)
    assert queue.get(later)["priority"] == 9
    queue.crash()
    queue.start()
    resume(queue)
    for msg_id in plain:
        queue.ended(msg_id)
    assert order(queue) == [*reversed(urgent), some, older, *plain]
    assert queue.state(later) == "que"


def test_a_priority_can_be_changed_while_a_message_waits(make):
    queue = make()
    first, second, third = (queue.send() for _ in range(3))
    assert queue.ok("set_message", {"msg_id": third, "priority": 2}) == "msg changed"
    queue.ok("set_message", {"msg_id": first, "due": time.time() + 900})
    queue.ok("set_message", {"msg_id": first, "priority": 9})
    queue.crash()
    queue.start()
    resume(queue)
    queue.ended(second)
    assert order(queue) == [third, second]
    text = queue.refused("set_message", {"msg_id": third, "priority": 2})
    assert text == "msg does not wait, it is in done"
    for asked in ({}, {"priority": 10}, {"priority": True}, {"due": "soon"}):
        queue.refused("set_message", {"msg_id": first, **asked})
    assert queue.get(first)["priority"] == 9


def test_a_person_lets_one_run_before_those_with_a_greater_priority(make):
    queue = make()
    urgent = [queue.send(priority=9) for _ in range(2)]
    plain = queue.send()
    queue.ok("run_message", {"msg_id": plain})
    resume(queue)
    queue.ended(urgent[1])
    assert order(queue) == [plain, *urgent]


@pytest.mark.parametrize("crash", [False, True])
def test_a_tenant_with_many_does_not_starve_another(make, crash):
    queue = make(fair_params=[1])
    many = [queue.send(param1="many") for _ in range(12)]
    few = [queue.send(param1="few") for _ in range(3)]
    if crash:
        queue.crash()
        queue.start()
    resume(queue)
    queue.ended(many[-1])
    pairs = zip(many[:3], few, strict=True)
    assert order(queue) == [*(i for pair in pairs for i in pair), *many[3:]]


def test_at_most_so_many_of_a_key_run_here_and_elsewhere(make):
    settings = {"concurrency": {"params": [1], "max": 2}, "pull": {}, "num_workers": 1}
    queue = make(**settings)
    same = [queue.send(param1="a", param4="go") for _ in range(4)]
    other = queue.send(param1="b")
    resume(queue)
    wait_until(lambda: order(queue) == same[:1])
    taken = lease(queue, count=100)
    assert [one["msg_id"] for one in taken] == [same[1], other]
    waits = queue.get(same[2])["story"]["why"]
    both = f"{same[0]}, {same[1]} are running, with an equal key (concurrency)."
    assert waits == both
    queue.crash()  # the lease goes on, and the lost attempt is the first again
    queue.start()
    wait_until(lambda: running(queue) == 3)
    assert lease(queue, count=100) == []
    finish(queue, taken[0], word="done")
    [more] = wait_until(lambda: lease(queue, count=100))
    assert more["msg_id"] == same[2]
    assert lease(queue, count=100) == []
    queue.configure(**{**settings, "concurrency": {"params": [1], "max": 3}})
    queue.ask("wake")
    assert [one["msg_id"] for one in lease(queue, count=100)] == [same[3]]
    (queue.root.path / "go").touch()
    assert queue.ended(same[0])["state"] == State.DONE


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"concurrency": {"params": [1]}}, "concurrency: it lacks max"),
        ({"concurrency": {"max": 1}}, "concurrency: params: it names no param"),
        ({"concurrency": {"params": [1], "max": 0}}, "concurrency: max: 0 is not"),
        ({"concurrency": {"params": [1], "max": 1, "x": 1}}, "'x' is not one of"),
        (
            {"concurrency": {"params": [1], "max": 2}, "blocking_params": [1]},
            "a queue has blocking_params or concurrency, not both",
        ),
        ({"rate": {"number": 3}}, "rate: per: None is not one of second, minute"),
        ({"rate": {"per": "hour"}}, "rate: number: None is not a whole number"),
        ({"rate": {"number": 0, "per": "hour"}}, "rate: number: 0 is not between"),
        ({"rate": {"number": 1, "per": "hour", "burst": 0}}, "rate: burst: 0 is not"),
        ({"fair_params": [5]}, "fair_params: 5 is not between 1 and 4"),
        ({"fair_params": [1], "batch": {"max": 2}}, "batch or fair_params, not both"),
    ],
)
def test_a_wrong_setting_is_told_and_the_old_ones_stay(make, settings, told):
    queue = make(**settings)
    assert told in wait_until(lambda: queue.ok("detail")["reason"])
    assert json.loads(queue.dir.config.read_text())
    resume(queue)
    assert queue.run()["state"] == "done"


# ---- rate


@pytest.mark.parametrize("how", rotated(["crash", "stop", "seal"]))
def test_a_restart_grants_no_start(make, how):
    queue = make(rate={"number": 3, "per": "hour"}, num_workers=9)
    ids = [queue.send() for _ in range(5)]
    resume(queue)
    wait_until(lambda: sorted(order(queue)) == ids[:3])
    why = queue.get(ids[4])["story"]["why"]
    begins = "The queue starts 3 messages per hour (rate); the next one in "
    assert re.match(re.escape(begins) + "(20|1[0-9]) min", why)
    assert queue.ok("detail")["stalled"] is None
    if how == "seal":
        queue.ask("seal")
    if how == "stop":
        queue.restart()
    else:
        queue.crash()
        queue.start()
    queue.ask("wake")
    assert queue.get(ids[3])["story"]["why"].startswith(begins)
    assert sorted(order(queue)) == ids[:3]
    queue.configure(num_workers=9, rate={"number": 9, "per": "second"})
    assert queue.ended(ids[4])["state"] == "done"


def test_one_that_asks_for_many_leases_gets_no_more_than_the_rate(make):
    settings = {"rate": {"number": 3, "per": "hour", "burst": 2}, "pull": {}}
    queue = make(num_workers=0, **settings)
    ids = [queue.send() for _ in range(5)]
    resume(queue)
    taken = lease(queue, count=100)
    assert [one["msg_id"] for one in taken] == ids[:2]
    assert lease(queue, count=100) == []
    finish(queue, taken[0], word="done")
    assert lease(queue, count=100) == []
    queue.crash()
    queue.start()
    assert lease(queue, count=100) == []


def test_a_message_starts_when_its_token_is_there(make):
    queue = make(rate={"number": 10, "per": "second", "burst": 1}, num_workers=9)
    ids = [queue.send() for _ in range(11)]
    began = time.monotonic()
    resume(queue)
    queue.ended(ids[-1])
    assert time.monotonic() - began >= 1.0


def test_messages_go_into_batches_by_priority(make):
    queue = make(batch={"max": 2, "wait": 60})
    plain = [queue.send() for _ in range(2)]
    urgent = [queue.send(priority=3) for _ in range(2)]
    resume(queue)
    wait_until(lambda: any(queue.get(i)["state"] != "que" for i in plain))
    first = [queue.get(msg_id)["result"] for msg_id in (*urgent, *plain)]
    batches = [result["batch"].rpartition(".")[0] for result in first]
    assert batches == [urgent[0]] * 2 + [plain[0]] * 2
