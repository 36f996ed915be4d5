"""What a command looked at before it waited may have changed meanwhile."""

import pytest
from harness.queues import RunningQueue, ask_at_once, kept, short

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
