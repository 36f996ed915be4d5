"""What a message asks for is done or refused; what was accepted before is taken as it is."""

import json

import pytest
from harness.queues import running_queue, short
from harness.waiting import wait_until

pytestmark = pytest.mark.process
DONE = "echo done fine >&3"


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root")) as queue:
        yield queue


def refused(reply):
    word, text = reply
    assert word == "fail"
    return text


@pytest.mark.parametrize("command", ["create_message", "prep_message", "single_que"])
@pytest.mark.parametrize("key", [{}, {"_key": "shop/1"}])
def test_every_way_to_create_a_message_refuses_a_near_miss(queue, command, key):
    asked = {"dest": "t", "param1": DONE, "retries": 3, **key}
    assert "say max_count" in refused(queue.ask(command, asked))
    asked = {"dest": "t", "param1": DONE, "after": 3, **key}
    assert "after is not a list" in refused(queue.ask(command, asked))


def test_a_transaction_names_the_message_and_takes_none(queue):
    txn = queue.ok("open_txn", {})["txn"]
    wanted = [{"param1": DONE}, {"param1": DONE, "after": 3}]
    text = refused(queue.ask("prepare_txn", {"txn": txn, "messages": wanted}))
    assert text.startswith("messages[1]: after is not a list")
    assert queue.ok("show_txn", {"txn": txn})["messages"] == 0
    queue.ok("abort_txn", {"txn": txn})


def test_what_another_rq_hands_on_is_taken_as_it_is(queue):
    asked = {"dest": "t", "param1": DONE, "priority": 5, "_key": "relay/abc"}
    word, full_id, state = queue.ask("prep_message", asked)
    assert (word, state) == ("ok", "prep")
    msg_id = short(full_id)
    assert queue.get(msg_id)["priority"] == 5
    queue.ok("commit_message", {"msg_id": msg_id})
    first = "http://other:3333/q/t/20200101.0000.00.000.1"
    asked = {"dest": "t", "param1": DONE, "priority": 6, "orig_msg_id": first}
    msg_id = short(queue.ok("create_message", asked))
    assert queue.get(msg_id)["priority"] == 6
    wait_until(lambda: queue.get(msg_id)["state"] == "done")
    copy = short(queue.ok("clone_message", {"msg_id": msg_id}))
    assert queue.get(copy)["priority"] == 6


@pytest.mark.slow
def test_what_comes_through_the_other_door_is_taken_as_it_is(queue):
    folder = queue.root.path / "coming"
    folder.mkdir()
    message = {"dest": "t", "param1": DONE, "delay": 1, "priority": 2}
    (folder / "msg").write_text(json.dumps(message))
    msg_id = "20200101.0000.00.000.77"
    folder.rename(queue.root.queue("t").path / "new" / msg_id)
    wait_until(lambda: queue.ask("get_message_state", {"msg_id": msg_id})[0] == "ok")
    wait_until(lambda: queue.get(msg_id)["state"] == "done")
    assert queue.get(msg_id)["delay"] == 1


def test_a_forwarded_copy_keeps_what_it_has(queue):
    first = "http://other:3333/q/t/20200101.0000.00.000.2"
    script = (
        "[ $RQ_MSG_ID = $(cat $RQ_ROOT/first) ] && echo forward t >&3 || echo done >&3"
    )
    (queue.root.path / "first").write_text("none")
    queue.root.pause("t").touch()
    queue.ask("wake")
    asked = {"dest": "t", "param1": script, "hold": 1, "orig_msg_id": first}
    msg_id = short(queue.ok("create_message", asked))
    (queue.root.path / "first").write_text(msg_id)
    queue.root.pause("t").unlink()
    queue.ask("wake")
    wait_until(lambda: queue.get(msg_id)["state"] == "done")
    wait_until(
        lambda: [
            one
            for one in queue.ok("list", {"state": "done"})
            if queue.get(one["msg_id"]).get("hold") == 1 and one["msg_id"] != msg_id
        ]
    )
