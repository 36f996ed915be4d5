"""Messages that run when others have ended: `after`."""

import pytest
from harness.queues import running_queue

pytestmark = pytest.mark.process
NOTE = """#!/bin/sh
eval "$RQ_PARAM1"
echo "$RQ_MSG_ID" >> "$RQ_ROOT/order"
echo "${RQ_PARAM2:-done}" >&3
"""
GO = 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.02; done'


def order(queue):
    path = queue.root.path / "order"
    return path.read_text().split() if path.exists() else []


def go(queue):
    (queue.root.path / "go").touch()


def test_a_message_runs_after_the_one_that_it_names(tmp_path):
    with running_queue(tmp_path, NOTE, num_workers=3) as queue:
        first = queue.send(param1=GO)
        second = queue.send(after=[first])
        third = queue.send()
        queue.ended(third)
        assert queue.state(second) == "que"
        assert queue.get(second)["after"] == [f"t/{first}"]
        go(queue)
        assert queue.ended(second)["state"] == "done"
        assert order(queue) == [third, first, second]


def test_it_waits_for_messages_of_other_queues(tmp_path):
    with (
        running_queue(tmp_path, NOTE) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        first = other.send(param1=GO)
        second = queue.send(after=[f"other/{first}"])
        go(queue)
        assert queue.ended(second, seconds=5)["state"] == "done"
        assert order(queue) == [first, second]


def test_a_kill_forgets_nobody_who_waits(tmp_path):
    with (
        running_queue(tmp_path, NOTE) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        first = other.send(param1=GO)
        second = queue.send(after=[f"other/{first}"])
        queue.crash()
        queue.start()
        assert queue.state(second) == "que"
        go(queue)
        assert queue.ended(second)["state"] == "done"


@pytest.mark.parametrize(
    ("fields", "says", "state", "cause"),
    [
        ({}, "done", "done", "done"),
        ({"after_fail": "err"}, "err", "err", "after"),
        ({"after_fail": "cancel"}, "err", "err", "after"),
        ({"after_rule": "ended"}, "err", "done", "done"),
        ({"after_rule": "failed"}, "err", "done", "done"),
        ({"after_rule": "failed"}, "done", "done", "not_needed"),
    ],
)
def test_the_rule_decides(tmp_path, fields, says, state, cause):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param2=says)
        ended = queue.run(after=first, **fields)
        assert (ended["state"], ended["result"]["cause"]) == (state, cause)


def test_what_is_held_back_by_a_failure_runs_when_that_is_retried(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param1='[ -e "$RQ_ROOT/go" ] || exec sh -c "echo err >&3"')
        assert queue.ended(first)["state"] == "err"
        second = queue.send(after=[first])
        go(queue)
        queue.ok("retry_message", {"msg_id": first})
        assert queue.ended(second)["state"] == "done"


def test_what_is_not_there_is_refused(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        gone = "20260102.0304.05.006.1767323045007"
        for name in (gone, f"t/{gone}", f"nowhere/{gone}", f"http://h/q/t/{gone}"):
            said = queue.refused("create_message", {"dest": "t", "after": [name]})
            assert said.startswith("after: there is no message ")
        assert "is no message" in queue.refused(
            "create_message", {"dest": "t", "after": ["what"]}
        )
