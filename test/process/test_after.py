"""Messages that run when others have ended: `after`."""

import json
import os
import shutil
import sys
import time
from types import SimpleNamespace

import pytest
from harness import lease_words
from harness.queues import RunningQueue, kept, running_queue, short
from harness.waiting import wait_until

from rq.errors import Busy
from rq.layout import Root
from rq.message.message import Message
from rq.queues.asking import after_file
from rq.queues.control import predecessors

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


def test_an_id_of_another_host_is_not_there_though_it_is_one_here_too(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.run()["msg_id"]
        theirs = {"dest": "t", "after": [f"http://other:3333/q/t/{short(first)}"]}
        for command in ("create_message", "prep_message"):
            assert "no message http://other:3333/" in queue.refused(command, theirs)
        assert queue.refused("create_message", {**theirs, "_key": "k"})
        word, why, *_ = queue.ok("create_messages", {"messages": [theirs]})[0]
        assert (word, "there is no message" in why) == ("fail", True)
        txn = queue.ok("open_txn", {})["txn"]
        wanted = {"txn": txn, "messages": [theirs]}
        assert "there is no message" in queue.refused("prepare_txn", wanted)
        drop(queue, DROPPED, after=theirs["after"])
        queue.ask("wake")
        wait_until(lambda: os.listdir(queue.dir.path / "err"))
        [msg_id] = os.listdir(queue.dir.path / "err")
        assert "no message http://other:3333/" in queue.get(msg_id)["status"]
        own = {"dest": "t", "after": [f"http://127.0.0.1:3333/q/t/{short(first)}"]}
        second = short(queue.ok("create_message", own))
        assert queue.ended(second)["after"] == [f"t/{short(first)}"]


def drop(queue, name, **fields):
    """Rename a folder into new/."""
    folder = queue.root.path / name
    folder.mkdir()
    (folder / "msg").write_text(json.dumps({"dest": queue.name, **fields}))
    folder.rename(at_door(queue, name))


def at_door(queue, name):
    return queue.dir.path / "new" / name


def is_taken(queue, name):
    queue.ask("wake")
    return not at_door(queue, name).exists()


DROPPED, ANOTHER = "20260102.0304.05.006.7", "20260102.0304.05.006.8"


def test_a_folder_in_new_waits_for_the_one_that_it_names(tmp_path):
    with running_queue(tmp_path, NOTE, num_workers=2) as queue:
        first = queue.send(param1=GO)
        drop(queue, DROPPED, after=[first])
        drop(queue, ANOTHER, after=f"t/{DROPPED}", after_rule="ended")
        queue.ask("wake")
        assert queue.get(DROPPED)["after"] == [f"t/{first}"]
        assert queue.state(ANOTHER) == "que"
        go(queue)
        assert queue.ended(ANOTHER)["state"] == "done"
        assert order(queue) == [first, DROPPED, ANOTHER]


def test_a_folder_in_new_that_names_what_is_not_there_goes_to_err(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        drop(queue, "wrong", after=[DROPPED])
        queue.ask("wake")
        wait_until(lambda: os.listdir(queue.dir.path / "err"))
        [msg_id] = os.listdir(queue.dir.path / "err")
        shown = queue.get(msg_id)
        asked = {"dest": "t", "after": [DROPPED]}
        sentence = queue.refused("create_message", asked)
        assert shown["status"] == f"err - {sentence}"
        assert shown["result"]["cause"] == "bad_message"
        assert not at_door(queue, "wrong").exists()


@pytest.mark.slow
def test_a_folder_stays_in_new_until_it_is_known_whether_it_may_wait(tmp_path):
    with (
        running_queue(tmp_path, NOTE) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        first = other.run()["msg_id"]
        other.crash()
        drop(queue, DROPPED, after=[f"other/{first}"])
        drop(other, ANOTHER)
        drop(queue, "later", after=[f"other/{ANOTHER}"])
        queue.ask("wake")
        assert "does not" in queue.ok("detail")["left_at_door"][DROPPED]
        plain = queue.run()["msg_id"]
        other.start()
        wait_until(lambda: is_taken(queue, "later"))
        assert queue.ended(DROPPED)["state"] == "done"
        wait_until(lambda: len(order(queue)) == 5)
        assert order(queue).index(ANOTHER) < 4
        assert order(queue)[:2] == [first, plain]


def test_a_folder_stays_in_new_while_what_it_names_does(tmp_path):
    with (
        running_queue(tmp_path, NOTE) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        other.stop()
        drop(other, ANOTHER)
        drop(queue, DROPPED, after=[f"other/{ANOTHER}"])
        queue.ask("wake")
        assert at_door(queue, DROPPED).exists()
        other.start()
        wait_until(lambda: is_taken(queue, DROPPED))
        ask = {"msg_id": DROPPED}
        wait_until(lambda: queue.ask("get_message_state", ask)[0] == "ok")
        assert queue.ended(DROPPED)["state"] == "done"
        assert order(queue) == [ANOTHER, DROPPED]


def test_what_failed_for_another_waits_again_when_it_is_retried(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param1='[ -e "$RQ_ROOT/go" ] || exec sh -c "echo err >&3"')
        second = queue.send(after=[first], after_fail="err")
        assert queue.ended(second)["result"]["cause"] == "after"
        queue.ok("retry_message", {"msg_id": second})
        ended = queue.ended(second)
        assert (ended["state"], ended["result"]["cause"]) == ("err", "after")
        go(queue)
        queue.ok("retry_message", {"msg_id": first})
        assert queue.ended(first)["state"] == "done"
        queue.ok("retry_message", {"msg_id": second})
        assert queue.until(second, "done")["state"] == "done"


def test_what_is_not_run_is_passed_on(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param2="err")
        not_run = queue.send(after=[first], after_fail="cancel")
        handler = queue.send(after=[not_run], after_rule="failed")
        ends = {
            "done": queue.send(after=[not_run]),
            "ended": queue.send(after=[not_run], after_rule="ended"),
            "unneeded": queue.send(after=[handler]),
        }
        cancelled = queue.ended(not_run)
        assert cancelled["acknowledged"]
        assert cancelled["result"]["outcome"] == "not_run"
        causes = {name: queue.ended(i)["result"]["cause"] for name, i in ends.items()}
        assert causes == {"done": "after", "ended": "done", "unneeded": "not_needed"}
        assert queue.ended(handler)["result"]["cause"] == "not_needed"


def test_what_is_not_run_is_acknowledged_in_the_group_that_says_so(tmp_path):
    """A power cut leaves both lines or neither."""
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param2="err")
        not_run = queue.send(after=[first], after_fail="cancel")
        queue.ended(not_run)
        queue.ok("seal")
        files = queue.dir.history.glob("*/*.jsonl")
        rows = [json.loads(x) for file in files for x in file.read_text().splitlines()]
    groups = {row["ev"]: row["g"] for row in rows if row.get("msg") == not_run}
    assert groups["fail"] == groups["dismiss"]


def test_a_person_may_hold_it_too_and_release_it_from_both(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(due=4e9)
        second = queue.send(after=[first], hold="a freeze")
        assert queue.get(second)["_why"]["reason"] == "held"
        queue.ok("release_message", {"msg_id": second, "who": "ann"})
        why = queue.get(second)["_why"]
        assert (why["reason"], why["by"]) == ("after", f"t/{first}")
        assert f"t/{first}, which has not ended" in why["text"]
        assert "wait" in queue.refused("run_message", {"msg_id": second})
        said = queue.ok("release_after", {"msg_id": second, "who": "ann"})
        assert said == "msg waits for no other"
        ended = queue.ended(second)
        assert (ended["state"], ended["after_end"]["end"]) == ("done", "release")
        assert ended["after_end"]["by"].startswith("ann")


@pytest.mark.parametrize("stop", ["clean", "killed", "no index", "no checkpoint"])
def test_what_was_told_stays_true_after_a_start(tmp_path, stop):
    with (
        running_queue(tmp_path, NOTE, num_workers=2) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        ended = other.run()["msg_id"]
        running = other.send(param1=GO)
        second = queue.send(after=[f"other/{ended}", f"other/{running}"])
        held = queue.send(after=[f"other/{running}"], hold=True)
        other.ok("delete_message", {"msg_id": ended})
        if stop == "clean":
            queue.restart()
        elif stop == "no checkpoint":
            queue.crash()
            (queue.dir.path / "journal/checkpoint").unlink(missing_ok=True)
            queue.start()
        else:
            queue.restart()
            third = queue.send(after=[f"other/{running}"])
            queue.crash()
            if stop == "no index":
                (queue.dir.path / "journal/index").unlink()
            queue.start()
            assert queue.get(third)["_why"]["reason"] == "after"
        assert "1 more" not in queue.get(second)["_why"]["text"]
        go(queue)
        assert queue.ended(second)["state"] == "done"
        assert queue.state(held) == "que"
        queue.ok("release_message", {"msg_id": held, "who": "ann"})
        assert queue.ended(held)["state"] == "done"


def test_a_decision_is_final(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.run()["msg_id"]
        (queue.root.pause("t")).touch()
        queue.ask("wake")
        second = queue.send(after=[first])
        wait_until(lambda: "after_end" in queue.get(second))
        queue.ok("delete_message", {"msg_id": first})
        queue.restart()
        queue.crash()
        (queue.dir.path / "journal/index").unlink()
        queue.start()
        (queue.root.pause("t")).unlink()
        queue.ask("wake")
        assert queue.ended(second)["state"] == "done"


def test_a_queue_that_was_stopped_is_read_from_its_folders(tmp_path):
    with (
        running_queue(tmp_path, NOTE) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        first, later = other.run()["msg_id"], other.send(due=4e9)
        assert other.stop() == 0
        second = queue.send(after=[f"other/{first}"])
        third = queue.send(after=[f"other/{later}"])
        assert queue.ended(second)["state"] == "done"
        other.start()
        other.run()
        other.crash()
        assert "does not say" in queue.refused(
            "create_message", {"dest": "t", "after": [f"other/{first}"]}
        )
        wait_until(lambda: "does not answer" in queue.get(third)["_why"]["text"])
        other.start()


def test_a_copy_leaves_out_what_a_message_waited_for(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        second = queue.run(after=[queue.run()["msg_id"]])["msg_id"]
        copy = queue.ok("clone_message", {"msg_id": second}).rpartition("/")[2]
        assert "after" not in queue.ended(copy)
        changes = {"msg_id": second, "changes": {"param1": ":"}}
        edited = queue.ok("edit_message", changes).rpartition("/")[2]
        assert "after" not in queue.ended(edited)


def test_a_transaction_may_hold_the_part_and_the_whole(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        txn = queue.ok("open_txn", {})["txn"]
        parts = queue.ok("prepare_txn", {"txn": txn, "messages": [{}, {}]})
        whole = {"txn": txn, "messages": [{"after": parts}]}
        (last,) = queue.ok("prepare_txn", whole)
        queue.ok("commit_txn", {"txn": txn, "ids": [*parts, last]})
        assert queue.ended(last)["state"] == "done"
        assert order(queue)[-1] == last


FAILS_ONCE = '[ -e "$RQ_ROOT/go" ] || exec sh -c "echo err >&3"'


@pytest.fixture
def two(tmp_path):
    with (
        running_queue(tmp_path, NOTE) as queue,
        running_queue(tmp_path, NOTE, name="other") as other,
    ):
        yield queue, other


def why(queue, msg_id):
    return queue.get(msg_id)["_why"]["text"]


def test_what_was_moved_is_waited_for_where_it_goes_on(two):
    queue, other = two
    first = queue.send(due=4e9)
    second, third = queue.send(after=[first]), other.send(after=[f"t/{first}"])
    queue.ok("move_message", {"msg_id": first, "to": "other", "who": "ann"})
    wait_until(lambda: "goes_on" in queue.get(first)["result"])
    (moved,) = (
        row["msg_id"]
        for row in other.ok("list", {"state": "que"})
        if row["msg_id"] != third
    )
    assert queue.get(first)["result"]["goes_on"] == f"other/{moved}"
    queue.crash()
    queue.start()
    assert queue.get(first)["result"]["goes_on"] == f"other/{moved}"
    wait_until(lambda: other.get(moved) and "after" in why(queue, second))
    assert queue.state(second) == "que"
    other.ok("run_message", {"msg_id": moved})
    assert queue.ended(second)["state"] == "done"
    assert other.ended(third)["state"] == "done"
    assert order(queue)[0] == moved


def test_what_fails_for_a_cancelled_one_says_so_and_a_retry_of_that_counts(two):
    queue, other = two
    first = other.send(param1=GO)
    other.until(first, "run")
    held = queue.send(after=[f"other/{first}"])
    failed = queue.send(after=[f"other/{first}"], after_fail="err")
    other.ok("cancel_message", {"msg_id": first, "who": "ann"})
    assert f"other/{first}, which was cancelled" in queue.ended(failed)["story"]["why"]
    wait_until(lambda: "which was cancelled" in why(queue, held))
    go(queue)
    other.ok("retry_message", {"msg_id": first, "who": "ann"})
    assert queue.ended(held)["state"] == "done"


def test_what_is_on_its_way_when_its_queue_stops_has_not_ended(two):
    queue, other = two
    first = other.send(due=4e9)
    queue.stop()
    other.ok("move_message", {"msg_id": first, "to": "t", "who": "ann"})
    assert other.stop() == 0
    queue.start()
    second = queue.send(after=[f"other/{first}"])
    wait_until(lambda: "has not ended" in why(queue, second))
    other.start()
    wait_until(lambda: "goes_on" in other.get(first)["result"])
    moved = other.get(first)["result"]["goes_on"].partition("/")[2]
    queue.ok("run_message", {"msg_id": moved})
    assert queue.ended(second)["state"] == "done"
    assert order(queue) == [moved, second]


def test_what_waits_may_be_moved_and_waits_on(two):
    queue, other = two
    first = queue.send(due=4e9)
    second = queue.send(after=[first], after_rule="ended")
    queue.ok("move_message", {"msg_id": second, "to": "other", "who": "ann"})
    wait_until(lambda: "goes_on" in queue.get(second)["result"])
    moved = queue.get(second)["result"]["goes_on"].partition("/")[2]
    assert other.get(moved)["after"] == [f"t/{first}"]
    assert other.get(moved)["_why"]["reason"] == "after"
    queue.ok("run_message", {"msg_id": first})
    assert other.ended(moved)["state"] == "done"


def test_what_was_edited_is_waited_for_as_the_new_message(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param1=FAILS_ONCE)
        second = queue.send(after=[first])
        assert queue.ended(first)["state"] == "err"
        wait_until(lambda: "which failed" in why(queue, second))
        changes = {"msg_id": first, "changes": {"param1": ":"}}
        edited = queue.ok("edit_message", changes).rpartition("/")[2]
        assert queue.ended(second)["state"] == "done"
        assert order(queue) == [edited, second]
        assert queue.get(first)["result"]["goes_on"] == f"t/{edited}"


@pytest.mark.parametrize("rule", ["done", "failed"])
def test_what_a_person_has_deleted_counts_as_failed(two, rule):
    queue, other = two
    first = other.send(due=4e9)
    second = queue.send(after=[f"other/{first}"], after_rule=rule, after_fail="err")
    other.ok("delete_message", {"msg_id": first})
    ended = queue.ended(second)
    if rule == "failed":
        assert ended["state"] == "done"
    else:
        assert f"other/{first}, which was deleted" in ended["story"]["why"]
    assert "no message" in queue.refused(
        "create_message", {"dest": "t", "after": [f"other/{first}"]}
    )


def test_many_that_were_deleted_while_it_was_down_are_known_at_once(two):
    """All are gone when it asks: each answer says how all of them went."""
    queue, other = two
    rows = other.ok(
        "create_messages", {"messages": [{"dest": "other", "due": 4e9}] * 300}
    )
    ids = [row[1] for row in rows]
    second = queue.send(after=[f"other/{each}" for each in ids], after_rule="failed")
    assert queue.stop() == 0
    for msg_id in ids:
        other.ok("delete_message", {"msg_id": msg_id})
    queue.start()
    assert queue.ended(second, seconds=20)["result"]["cause"] == "done"


@pytest.mark.parametrize("how", ["abort", "another is chosen"])
def test_what_a_transaction_leaves_out_was_deleted(two, how):
    """Its line tells of many."""
    queue, other = two
    txn = other.ok("open_txn", {})["txn"]
    ids = other.ok("prepare_txn", {"txn": txn, "messages": [{}] * 3})
    second = queue.send(after=[f"other/{ids[0]}"], after_fail="err")
    if how == "abort":
        other.ok("abort_txn", {"txn": txn})
    else:
        other.ok("commit_txn", {"txn": txn, "ids": ids[1:]})
    ended = queue.ended(second)
    assert f"other/{ids[0]}, which was deleted" in ended["story"]["why"]


def test_what_has_expired_never_fails_by_itself(two):
    queue, other = two
    first = other.run(param2="err")["msg_id"]
    running = other.send(due=4e9)
    wanted = {"after": [f"other/{first}", f"other/{running}"], "after_rule": "ended"}
    second = queue.send(**wanted)
    other.ok("ack_message", {"msg_id": first})
    folder = other.dir.path / "err" / f".{first}"
    assert other.stop() == 0
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    other.start()
    other.ok("run_message", {"msg_id": running})
    wait_until(lambda: "is not there any more" in why(queue, second))
    assert queue.state(second) == "que"
    queue.ok("release_after", {"msg_id": second, "who": "ann"})
    assert queue.ended(second)["state"] == "done"


def test_equal_messages_do_not_meet_one_that_waits(tmp_path):
    unique = {"params": [1], "conflict": "replace"}
    with running_queue(tmp_path, NOTE, unique=unique) as queue:
        first = queue.send(due=4e9, param1=": 1")
        second = queue.send(after=[first], param1=": 2")
        third = queue.send(param1=": 2")
        assert queue.ended(third)["state"] == "done"
        assert queue.state(second) == "que"
        newer = queue.send(due=4e9, param1=": 1")  # it takes the place of the first
        wait_until(lambda: newer in why(queue, second) or first in why(queue, second))
        queue.ok("run_message", {"msg_id": newer})
        assert queue.ended(second)["state"] == "done"


def test_a_repeated_send_is_never_refused(two):
    queue, other = two
    first = other.run()["msg_id"]
    wanted = {"dest": "t", "after": [f"other/{first}"], "_key": "k"}
    second = queue.ok("create_message", dict(wanted))
    other.ok("delete_message", {"msg_id": first})
    assert queue.ok("create_message", dict(wanted)) == second


TELLS = """#!/bin/sh
eval "$RQ_PARAM1"
if [ -n "$RQ_AFTER" ]; then
    cp "$RQ_AFTER" "$RQ_ROOT/after-$RQ_MSG_ID"
    echo "result ${RQ_PARENT_RESULT-none}" >&3
fi
echo "${RQ_PARAM2:-done}" >&3
"""


NEVER_BY_ITSELF = """
from rq.spool import lag
lag.Lag.settle_some = lambda self, seconds: False
"""


def told(queue, msg_id):
    text = (queue.root.path / f"after-{msg_id}").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_script_is_told_of_those_that_it_waited_for(tmp_path):
    with (
        running_queue(tmp_path, TELLS) as queue,
        running_queue(tmp_path, TELLS, name="other") as other,
    ):
        first = other.run(param1='echo "result 42" >&3')["msg_id"]
        failed = other.run(param2="err")["msg_id"]
        both = {"after": [f"other/{first}", f"other/{failed}"], "after_rule": "ended"}
        second = queue.run(**both)["msg_id"]
        assert told(queue, second) == [
            {
                "id": first,
                "queue": "other",
                "state": "done",
                "cause": "done",
                "result": "42",
            },
            {"id": failed, "queue": "other", "state": "err", "cause": "said_err"},
        ]
        assert queue.get(second)["result"]["result"] == "none"
        only = queue.run(after=[f"other/{first}"])
        assert only["result"]["result"] == "42"


def test_a_result_is_told_however_far_folders_lag(tmp_path):
    other = RunningQueue(tmp_path, "other", TELLS)
    other.prelude = NEVER_BY_ITSELF
    with running_queue(tmp_path, TELLS) as queue, kept(other):
        first = other.run(param1='echo "result 42" >&3')["msg_id"]
        second = queue.run(after=[f"other/{first}"])["msg_id"]
        [row] = told(queue, second)
        assert (row["state"], row.get("result")) == ("done", "42")


def test_who_may_not_read_a_message_any_more_is_not_told_its_result(tmp_path):
    users = {
        "ann": {"password": "long enough", "queues": ["t"], "role": "producer"},
        "bob": {"password": "long enough", "queues": ["*"], "role": "producer"},
    }
    config = SimpleNamespace(basic_auth={"users": users})
    root = Root(tmp_path)
    reads = {
        by: after_file.readers(root, config, by)
        for by in ("ann", "bob", None, "root", "token:revoked")
    }
    assert {by for by, may in reads.items() if may("other", None)} == {
        "bob",
        None,
        "root",
    }
    assert reads["ann"]("other", "ann")
    assert reads["ann"]("t", "bob")
    with running_queue(tmp_path, TELLS, name="other") as other:
        first = other.run(param1='echo "result 42" >&3')["msg_id"]
        other.folder(first)
        message = Message(msg_id="x", dest="t", due=0.0, after=(f"other/{first}",))
        gone = message.with_(after=("other/20260102.0304.05.006.7",))
        assert after_file.build(root, message, reads["bob"]).result == "42"
        hidden = after_file.build(root, message, reads["ann"])
        assert hidden.result is None
        assert json.loads(hidden.data).keys() == {"id", "queue", "state", "cause"}
        assert json.loads(after_file.build(root, gone, reads["bob"]).data)["gone"]


BATCH = f"""#!{sys.executable}
import json, os, shutil
with open(os.environ["RQ_BATCH_FILE"]) as file:
    for each in json.load(file)["messages"]:
        target = os.environ["RQ_ROOT"] + "/after-" + each["msg_id"]
        shutil.copy(each["dir"] + "/after.jsonl", target)
        os.write(3, f"msg {{each['msg_id']}} done\\n".encode())
"""


def test_a_batch_finds_what_it_is_told_in_the_folder_of_each_message(tmp_path):
    batch = {"max": 2, "wait": 3600}
    with (
        running_queue(tmp_path, BATCH, name="all", batch=batch) as queue,
        running_queue(tmp_path, TELLS, name="other") as other,
    ):
        firsts = [other.run()["msg_id"] for _ in range(2)]
        seconds = [queue.send(after=[f"other/{msg_id}"]) for msg_id in firsts]
        for first, second in zip(firsts, seconds, strict=True):
            assert queue.ended(second)["state"] == "done"
            assert [row["id"] for row in told(queue, second)] == [first]


@pytest.mark.parametrize("wait", [0, 5])
def test_a_lease_tells_of_those_that_its_message_waited_for(tmp_path, wait):
    with (
        running_queue(tmp_path, name="away", num_workers=0, pull={}) as away,
        running_queue(tmp_path, TELLS, name="other") as other,
    ):
        asked = {"dest": "other", "param1": 'echo "result 42" >&3'}
        first = short(other.ok("prep_message", asked))
        (tmp_path / "a").write_text("x")
        file = {"msg_id": first, "pathname": str(tmp_path / "a")}
        other.ok("attach_message", file)
        other.ok("commit_message", {"msg_id": first})
        other.ended(first)
        due = time.time() + 0.5 if wait else 0.0  # else nothing is to be waited for
        second = away.send(after=[f"other/{first}"], due=due)
        plain = away.send()
        leased = {}
        while {second, plain} - leased.keys():
            taken = lease_words.lease(away, count=2, wait=wait)
            leased.update({each["msg_id"]: each for each in taken})
        row = {"id": first, "queue": "other", "state": "done", "cause": "done"}
        told_of = {**row, "result": "42", "attachments": ["a"]}
        assert leased[second]["after"] == [told_of]
        assert "after" not in leased[plain]


def test_results_that_are_too_many_for_an_answer_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(after_file, "_RESULTS", 3)
    with running_queue(tmp_path, TELLS, name="other") as other:
        ids = [other.run(param1='echo "result 42" >&3')["msg_id"] for _ in range(2)]
        places = tuple(f"other/{msg_id}" for msg_id in ids)
        message = Message(msg_id="x", dest="t", due=0.0, after=places)
        config = SimpleNamespace(basic_auth={})
        rows = after_file.for_leases(Root(tmp_path), config, [message])["x"]
        assert [row.get("result") for row in rows] == ["42", None]
        assert [row.get("left_out") for row in rows] == [None, True]


def test_a_hint_that_is_lost_costs_time_alone(two):
    queue, other = two
    first = other.send(param1=GO)
    second = queue.send(after=[f"other/{first}"])
    other.restart()  # it has forgotten who wants a hint
    go(queue)
    assert queue.ended(second)["state"] == "done"


def test_one_that_fails_for_another_tells_no_notice_and_its_webhooks(tmp_path):
    with running_queue(tmp_path, NOTE) as queue:
        first = queue.send(param2="err")
        urls = {"post_run_webhook": ["http://hooks.example.org/x"]}
        second = queue.send(after=[first], after_fail="cancel", **urls)
        queue.ended(second)
        owed = queue.ok("owed")
        assert [entry["msg_id"] for entry in owed] == [second]


def test_more_than_a_queue_can_remember_is_busy():
    owner = SimpleNamespace(
        backlog=SimpleNamespace(predecessors=SimpleNamespace(edges=999_999))
    )
    predecessors._check_room(owner, 1)
    with pytest.raises(Busy, match="wait for 999,999 others"):
        predecessors._check_room(owner, 2)


def test_a_copy_of_a_queue_holds_what_waits(two):
    queue, other = two
    first = other.send(due=4e9)
    second = queue.send(after=[f"other/{first}"])
    assert queue.stop() == 0
    shutil.copytree(
        queue.dir.path,
        queue.root.queue("copy").path,
        symlinks=True,
        ignore=lambda _, names: {name for name in names if name.endswith(".sock")},
    )
    queue.start()
    with kept(RunningQueue(queue.root.path, "copy", NOTE)) as copy:
        copy.ok("restore", {"as": "copy"})
        wait_until(lambda: copy.ask("status") == ["UP"])
        other.ok("run_message", {"msg_id": first})
        assert queue.ended(second)["state"] == "done"
        assert copy.get(second)["held"]["why"].startswith("its queue is a copy")
        copy.ok("release_message", {"msg_id": second, "who": "ann"})
        assert copy.ended(second)["state"] == "done"
