"""What a command looked at before it waited may have changed meanwhile."""

import pytest
from harness.extent import rotated
from harness.queues import RunningQueue, ask_at_once, kept, short
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ACKNOWLEDGED = "acknowledged"


@pytest.fixture
def queue(tmp_path):
    with kept(RunningQueue(tmp_path / "root", "t", "obey", clone="copy")) as queue:
        yield queue


def failed(queue):
    """Return a message with an attachment, which has failed."""
    asked = {"dest": "t", "param1": "echo err no >&3"}
    msg_id = short(queue.ok("prep_message", asked))
    file = queue.root.path / "large"
    file.write_bytes(bytes(2**20))
    queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(file)})
    queue.ok("commit_message", {"msg_id": msg_id})
    queue.until(msg_id, "err")
    return msg_id


def edit(msg_id, **more):
    changes = {"param1": "true", "due": 4e9}
    return "edit_message", {"msg_id": msg_id, "changes": changes, **more}


def at_once(queue, *requests):
    return ask_at_once(queue.dir.socket, queue.pid, *requests)


def numbers(queue):
    counts = queue.ask("num_messages")
    return {name: counts[name] for name in ("prep", "que", "err")}


@pytest.mark.parametrize(
    "seen", [{"if_version": ["err-1"]}, {}], ids=["seen", "unseen"]
)
def test_of_two_edits_at_once_one_is_made(queue, seen):
    msg_id = failed(queue)
    words = [
        reply[0] for reply in at_once(queue, edit(msg_id, **seen), edit(msg_id, **seen))
    ]
    assert sorted(words) == ["fail", "ok"]
    assert numbers(queue) == {"prep": 0, "que": 1, "err": 0}
    assert queue.get(msg_id)[ACKNOWLEDGED]


def test_the_same_edit_twice_is_one_and_both_are_told_of_it(queue):
    msg_id = failed(queue)
    asked = edit(msg_id, _key="k", if_version=["err-1"])
    first, second = at_once(queue, asked, asked)
    assert first[0] == "ok"
    assert first == second == queue.ask(*asked)
    assert numbers(queue)["que"] == 1


def test_an_edit_leaves_a_message_that_changes_while_it_is_copied(queue):
    msg_id = failed(queue)
    others = ("ack_errs", {"msg_id": msg_id})
    reply, _ = at_once(queue, edit(msg_id), others)
    assert reply[0] == "fail"
    assert "no longer as you have seen it, it is dismissed-1" in reply[1]
    assert numbers(queue) == {"prep": 0, "que": 0, "err": 0}


# ---- what is done to many

# The bulk that is asked for waits before each batch until a file is there.
GATE = """
import asyncio, os
from rq.queues.bulk.worker import Worker
async def wait(self, bulk):
    while not os.path.exists(os.environ["GO"]):
        await asyncio.sleep(0.02)
Worker._keep_pace = wait
"""


@pytest.fixture
def gated(tmp_path):
    """A queue whose bulks begin to act when the test says so."""
    queue = RunningQueue(tmp_path / "root", "t", "obey", clone="copy")
    queue.prelude, queue.env["GO"] = GATE, str(tmp_path / "go")
    with kept(queue):
        yield queue


def again(queue, msg_id):
    """Let a message run again, and fail again."""
    queue.ok("retry_message", {"msg_id": msg_id})
    wait_until(lambda: queue.get(msg_id)["attempt"] == 2)
    queue.until(msg_id, "err")


@pytest.mark.parametrize("restart", rotated([False, True]), ids=["", "after kill -9"])
@pytest.mark.parametrize("action", ["ack", "delete", "retry"])
def test_a_bulk_leaves_a_failure_that_came_after_it_was_chosen(gated, action, restart):
    first, *others = [failed(gated) for _ in range(3)]
    asked = {"action": action, "filter": {"state": "err"}}
    bulk = {"bulk": gated.ok("bulk", asked)["bulk"]}
    again(gated, first)
    if restart:
        gated.crash()
        gated.start()
    open(gated.env["GO"], "w").close()
    view = wait_until(
        lambda: (v := gated.ok("show_bulk", bulk))["state"] != "open" and v
    )
    assert (view["messages"], view["changed"], view["failed_again"]) == (3, 2, 1)
    assert ACKNOWLEDGED not in gated.get(first)
    assert (gated.state(first), gated.get(first)["attempt"]) == ("err", 2)
    if action == "ack":
        assert all(gated.get(msg_id)[ACKNOWLEDGED] for msg_id in others)


def test_a_bulk_goes_by_the_failures_that_were_counted(queue):
    first, second = failed(queue), failed(queue)
    asked = {"action": "ack", "filter": {"state": "err"}}
    counted = queue.ok("bulk", {**asked, "dry_run": True})
    assert counted["messages"] == 2
    again(queue, first)
    asked["filter"]["before"] = counted["at"]
    bulk = {"bulk": queue.ok("bulk", asked)["bulk"]}
    view = wait_until(
        lambda: (v := queue.ok("show_bulk", bulk))["state"] != "open" and v
    )
    assert (view["messages"], view["changed"]) == (1, 1)
    assert ACKNOWLEDGED not in queue.get(first)
    assert queue.get(second)[ACKNOWLEDGED]
