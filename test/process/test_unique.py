"""Equal messages stand once: joined, replaced, rejected; by every way in, after any end."""

import contextlib
import json
import time

import pytest
from harness.queues import ask_at_once, running_queue, short
from harness.relay import pair_at
from harness.waiting import wait_until

pytestmark = pytest.mark.process

# Ends when its message is told to; until then it runs.
SCRIPT = """#!/bin/sh
while [ ! -e "$RQ_ROOT/go" ] && [ ! -e go ] && [ ! -e "{go}" ]; do sleep 0.05; done
echo done >&3
"""


@contextlib.contextmanager
def unique(tmp_path, workers=0, **setting):
    """Give a queue whose messages with the same param1 are equal."""
    script = SCRIPT.replace("{go}", str(tmp_path / "go"))
    setting = {"params": [1], **setting}
    with running_queue(tmp_path, script, unique=setting, num_workers=workers) as queue:
        yield queue


def send(queue, param1="a", **more):
    """Send a message; return its short id, and what else the answer says."""
    word, full, *rest = queue.ask(
        "create_message", {"dest": "t", "param1": param1, **more}
    )
    assert word == "ok", full
    return short(full), *rest


def events(queue, msg_id):
    """Return the lines of the journal about a message."""
    queue.ok("seal")
    paths = sorted(queue.dir.path.glob("history/*/*.jsonl"))
    texts = [text for path in paths for text in path.read_text().splitlines()]
    lines = [json.loads(text) for text in texts]
    return [line for line in lines if line.get("msg") == msg_id]


def running(queue, param1="a"):
    """Send a message and wait until it runs; return its id."""
    msg_id, *_ = send(queue, param1)
    queue.until(msg_id, "run")
    return msg_id


# ---- join


def test_an_equal_message_joins_the_one_that_waits(tmp_path):
    with unique(tmp_path) as queue:
        first = send(queue)
        assert first == (short(first[0]),)
        assert send(queue) == (*first, "joined")
        assert send(queue, "b") != first
        assert queue.ask("num_messages")["que"] == 2


def test_a_joined_key_gets_the_same_id_after_the_end_and_kill_9(tmp_path):
    with unique(tmp_path, scope="both", workers=1) as queue:
        first, *_ = send(queue)
        joined = send(queue, _key="shop/1")
        assert joined == (first, "joined")
        queue.crash()
        queue.start()
        (tmp_path / "go").touch()
        queue.ended(first)
        queue.ok("delete_message", {"msg_id": first})
        assert send(queue, _key="shop/1") == joined
        queue.restart()
        assert send(queue, _key="shop/1") == joined
        assert send(queue)[0] != first  # without the key it is a new one


def test_a_joined_key_with_another_message_is_refused(tmp_path):
    with unique(tmp_path) as queue:
        send(queue)
        send(queue, _key="k", _same=True)
        other = {"dest": "t", "param1": "b", "_key": "k", "_same": True}
        assert "came with another message" in queue.refused("create_message", other)


def test_the_scope_says_where_a_message_stands(tmp_path):
    with unique(tmp_path, workers=1, scope="queued") as queue:
        first = running(queue)
        second, *joined = send(queue)
        assert (second != first, joined) == (True, [])
        assert send(queue) == (second, "joined")
        (tmp_path / "go").touch()


def test_the_scope_running_lets_equal_ones_wait(tmp_path):
    with unique(tmp_path, scope="running") as queue:
        assert send(queue)[0] != send(queue)[0]
        queue.configure(num_workers=1)
        queue.ask("wake")
        wait_until(lambda: queue.ask("num_messages")["run"] == 1)
        assert send(queue)[1:] == ("joined",)
        (tmp_path / "go").touch()
        wait_until(lambda: queue.ask("num_messages")["done"] == 2)


def test_a_message_in_run_stands_under_both_also_after_kill_9(tmp_path):
    with unique(tmp_path, workers=1, scope="both") as queue:
        first = running(queue)
        assert send(queue) == (first, "joined")
        queue.crash()
        queue.start()
        assert send(queue) == (first, "joined")
        (tmp_path / "go").touch()
        queue.ended(first)
        assert send(queue)[1:] == ()


LEASES = "#!/bin/sh\nexit 1\n"


def test_the_scope_running_stands_after_kill_9(tmp_path):
    setting = {"params": [1], "scope": "running"}
    with running_queue(
        tmp_path, LEASES, unique=setting, num_workers=0, pull={}
    ) as queue:
        first, *_ = send(queue)
        queue.ok("lease", {"seconds": 600})
        assert queue.state(first) == "run"
        queue.crash()
        queue.start()
        second = send(queue)
        assert second == (first, "joined")


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_the_keys_of_what_waits_are_there_after_a_start(tmp_path, end):
    with unique(tmp_path) as queue:
        ids = [send(queue, str(n))[0] for n in range(20)]
        queue.restart()
        if end == "crash":
            ids.append(send(queue, "20")[0])
            queue.crash()
            queue.start()
        else:
            queue.restart()
        for n, msg_id in enumerate(ids):
            assert send(queue, str(n)) == (msg_id, "joined")


def test_a_hundred_at_a_time_leave_one(tmp_path):
    with unique(tmp_path) as queue:
        request = ("create_message", {"dest": "t", "param1": "a"})
        replies = ask_at_once(queue.dir.socket, queue.pid, *[request] * 100)
        assert len({reply[1] for reply in replies}) == 1
        assert sum(len(reply) == 2 for reply in replies) == 1
        assert queue.ask("num_messages")["que"] == 1


# ---- reject


def test_a_rejected_message_is_told_who_stands(tmp_path):
    with unique(tmp_path, conflict="reject") as queue:
        first, *_ = send(queue)
        text = queue.refused("create_message", {"dest": "t", "param1": "a"})
        assert text == f"not accepted: message {first} is equal, and is in que (unique)"
        queue.ok("delete_message", {"msg_id": first})
        assert send(queue)[0] != first


# ---- replace


def test_a_newer_message_takes_the_place_of_the_one_that_waits(tmp_path):
    with unique(tmp_path, conflict="replace") as queue:
        first, *_ = send(queue)
        second, *joined = send(queue)
        assert joined == []
        assert queue.ask("get_message_state", {"msg_id": first})[0] == "fail"
        assert queue.state(second) == "que"
        (line,) = [e for e in events(queue, first) if e["ev"] == "discard"]
        assert (line["cause"], line["text"]) == ("replaced", f"message {second}")
        (come,) = [e for e in events(queue, second) if e["ev"] == "commit"]
        assert come["g"] == line["g"]
        queue.crash()
        queue.start()
        assert queue.ask("num_messages")["que"] == 1


def test_one_that_runs_is_never_replaced(tmp_path):
    with unique(tmp_path, workers=1, scope="both", conflict="replace") as queue:
        first = running(queue)
        second, *_ = send(queue)
        third, *_ = send(queue)
        assert (queue.state(first), queue.state(third)) == ("run", "que")
        assert queue.ask("num_messages")["que"] == 1
        assert second != third
        (tmp_path / "go").touch()
        queue.ended(third)


# ---- window


def test_a_window_outlasts_its_message_and_kill_9(tmp_path):
    (tmp_path / "go").touch()
    with unique(tmp_path, workers=1, scope="window", seconds=3600) as queue:
        first, *_ = send(queue)
        queue.ended(first)
        assert send(queue) == (first, "joined")
        queue.crash()
        queue.start()
        assert send(queue) == (first, "joined")
        queue.restart()
        assert send(queue) == (first, "joined")


def test_a_window_ends(tmp_path):
    (tmp_path / "go").touch()
    with unique(tmp_path, workers=1, scope="window", seconds=0.5) as queue:
        first, *_ = send(queue)
        began = time.monotonic()
        wait_until(lambda: send(queue)[0] != first)
        assert time.monotonic() - began > 0.3


def test_what_was_removed_before_it_ran_keeps_nobody_out(tmp_path):
    with unique(tmp_path, scope="window", seconds=3600) as queue:
        first, *_ = send(queue)
        queue.ok("delete_message", {"msg_id": first})
        second = send(queue)
        assert second[1:] == ()
        queue.ok("delete_message", {"msg_id": second[0]})
        queue.crash()
        queue.start()
        assert send(queue)[1:] == ()


# ---- prepared messages


def prepare(queue, **more):
    reply = queue.ask("prep_message", {"dest": "t", "param1": "a", **more})
    return short(reply[1])


@pytest.mark.parametrize("key", [{}, {"_key": "relay/x"}])
def test_a_commit_joins_and_says_so_again(tmp_path, key):
    with unique(tmp_path) as queue:
        msg_id = prepare(queue, **key)
        first, *_ = send(queue)
        commit = {"msg_id": msg_id, **key}
        word, text, said, full = queue.ask("commit_message", commit)
        assert (word, text, said, short(full)) == (
            "ok",
            "msg commited",
            "joined",
            first,
        )
        assert queue.ask("num_messages")["prep"] == 0
        again = ["ok", "msg already commited", "joined", full]
        assert queue.ask("commit_message", commit) == again
        queue.crash()
        queue.start()
        assert queue.ask("commit_message", commit) == again
        if key:
            asked = queue.ask("prep_message", {"dest": "t", "param1": "a", **key})
            assert asked == ["ok", full, "commited"]


def test_a_rejected_commit_leaves_the_message_in_prep(tmp_path):
    with unique(tmp_path, conflict="reject") as queue:
        msg_id = prepare(queue)
        first, *_ = send(queue)
        assert first in queue.refused("commit_message", {"msg_id": msg_id})
        assert queue.state(msg_id) == "prep"
        queue.ok("delete_message", {"msg_id": first})
        assert queue.ok("commit_message", {"msg_id": msg_id}) == "msg commited"


def test_a_message_has_a_key_of_its_own(tmp_path):
    with unique(tmp_path) as queue:
        first, *_ = send(queue, "a", unique_key="k")
        assert send(queue, "b", unique_key="k") == (first, "joined")
        assert send(queue, "a")[1:] == ()
        assert queue.get(first)["unique_key"] == "k"
    with running_queue(tmp_path / "plain", SCRIPT) as queue:
        request = {"dest": "t", "unique_key": "k"}
        assert "has no setting unique" in queue.refused("create_message", request)


# ---- transactions


def in_transaction(queue, *params):
    txn = queue.ok("open_txn", {})["txn"]
    messages = [{"dest": "t", "param1": param} for param in params]
    return txn, queue.ok("prepare_txn", {"txn": txn, "messages": messages})


def test_a_transaction_with_a_conflict_is_refused_whole(tmp_path):
    with unique(tmp_path) as queue:
        first, *_ = send(queue, "b")
        txn, ids = in_transaction(queue, "a", "b", "c")
        text = queue.refused("commit_txn", {"txn": txn, "ids": ids})
        assert first in text
        assert ids[1] in text
        assert queue.ask("num_messages")["que"] == 1
        queue.ok("commit_txn", {"txn": txn, "ids": [ids[0], ids[2]]})
        assert send(queue, "a") == (ids[0], "joined")


def test_two_equal_messages_of_a_transaction_are_refused(tmp_path):
    with unique(tmp_path, conflict="replace") as queue:
        txn, ids = in_transaction(queue, "a", "a")
        text = queue.refused("commit_txn", {"txn": txn, "ids": ids})
        assert ids[0] in text
        assert ids[1] in text
        queue.ok("commit_txn", {"txn": txn, "ids": ids[1:]})


def test_a_window_counts_from_the_commit_of_a_transaction(tmp_path):
    (tmp_path / "go").touch()
    with unique(tmp_path, workers=1, scope="window", seconds=3600) as queue:
        txn, ids = in_transaction(queue, "a", "b")
        queue.ok("commit_txn", {"txn": txn, "ids": ids})
        for msg_id in ids:
            queue.ended(msg_id)
        queue.crash()
        queue.start()
        assert send(queue, "a") == (ids[0], "joined")
        assert send(queue, "b") == (ids[1], "joined")


# ---- other ways in


def test_lines_of_one_request_are_compared_with_each_other(tmp_path):
    with unique(tmp_path) as queue:
        messages = [{"dest": "t", "param1": param} for param in "aba"]
        a, b, again = queue.ok("create_messages", {"messages": messages})
        assert again == [*a, "joined"]
        assert len(b) == 2


def drop(queue, name, param1="a"):
    """Rename a folder into new/."""
    folder = queue.root.path / name
    folder.mkdir()
    (folder / "msg").write_text(json.dumps({"dest": "t", "param1": param1}))
    folder.rename(queue.dir.path / "new" / name)
    queue.ask("wake")


DROPPED = "20200101.0000.00.000.7"


def test_a_folder_that_joins_ends_in_done_and_says_with_whom(tmp_path):
    with unique(tmp_path) as queue:
        first, *_ = send(queue)
        drop(queue, DROPPED)
        queue.until(DROPPED, "done")
        shown = queue.get(DROPPED)
        assert shown["status"] == f"done - message {first}"
        assert first in shown["story"]["why"]
        assert queue.ask("num_messages")["que"] == 1
        queue.crash()
        queue.start()
        assert queue.state(DROPPED) == "done"


@pytest.mark.parametrize(("conflict", "state"), [("join", "done"), ("reject", "err")])
def test_a_folder_that_was_kept_out_does_not_begin_the_window_anew(
    tmp_path, conflict, state
):
    (tmp_path / "go").touch()
    setting = {"scope": "window", "seconds": 3600, "conflict": conflict}
    with unique(tmp_path, workers=1, **setting) as queue:
        first, *_ = send(queue)
        queue.ended(first)
        for name in (DROPPED, DROPPED[:-1] + "8"):
            drop(queue, name)
            queue.until(name, state)
            assert first in queue.get(name)["story"]["why"]
            queue.crash()
            queue.start()


def test_a_folder_that_is_rejected_ends_in_err_and_can_be_retried(tmp_path):
    with unique(tmp_path, conflict="reject") as queue:
        first, *_ = send(queue)
        drop(queue, "any")
        wait_until(lambda: queue.ask("num_messages")["err"] == 1)
        (rejected,) = queue.ask("messages", {"state": "err", "limit": 9})
        assert first in queue.get(rejected)["story"]["why"]
        assert queue.get(rejected)["result"]["cause"] == "not_unique"
        queue.folder(rejected)  # it has left new/
        assert "not run again" in queue.refused("retry_message", {"msg_id": rejected})
        queue.ok("delete_message", {"msg_id": first})
        queue.ok("retry_message", {"msg_id": rejected})
        assert queue.state(rejected) == "que"


def test_a_retry_is_refused_while_an_equal_one_stands(tmp_path):
    failing = "#!/bin/sh\necho err no >&3\n"
    setting = {"params": [1], "conflict": "replace"}
    with running_queue(tmp_path, failing, unique=setting) as queue:
        failed, *_ = send(queue)
        queue.until(failed, "err")
        queue.configure(num_workers=0)
        queue.ask("wake")
        second, *_ = send(queue)
        text = queue.refused("retry_message", {"msg_id": failed})
        assert (
            text == f"not run again: message {second} is equal, and is in que (unique)"
        )
        queue.ok("delete_message", {"msg_id": second})
        queue.ok("retry_message", {"msg_id": failed})
        assert send(queue)[0] != failed  # replaced
        assert queue.ask("num_messages")["que"] == 1


# ---- another rule while it runs


def test_the_setting_holds_from_its_change_on(tmp_path):
    with running_queue(tmp_path, SCRIPT, num_workers=0) as queue:
        first, *_ = send(queue)
        second, *_ = send(queue)
        queue.configure(unique={"params": [1]})
        queue.ask("wake")
        wait_until(lambda: send(queue) == (first, "joined"))
        queue.ok("delete_message", {"msg_id": first})
        assert send(queue) == (second, "joined")
        queue.configure(unique={"params": [1, 2]})
        queue.ask("wake")
        wait_until(lambda: send(queue, param2="x")[1:] == ())


# ---- handed over


@contextlib.contextmanager
def relayed_to(tmp_path, conflict):
    """Give a pair whose receiver has a message that waits; and that message."""
    with pair_at(tmp_path) as pair:
        setting = {"params": [1], "conflict": conflict}
        pair.sink.configure(unique=setting, num_workers=0)
        pair.sink.restart()
        yield pair, short(pair.sink.ok("create_message", {"dest": "t", "param1": "a"}))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "drop reply", "twice"])
def test_a_relayed_message_that_joins_is_delivered(tmp_path, fault):
    with relayed_to(tmp_path, "join") as (pair, stands):
        if fault:
            pair.proxy.once("commit", fault)
        ended = pair.relayed(pair.send({"a.txt": b"x"}, param1="a"))
        assert ended["state"] == "relayed"
        assert ended["result"]["job_status"].endswith(stands)
        assert [got["msg_id"] for got in pair.received()] == [stands]
        assert pair.sink.ask("num_messages")["prep"] == 0


@pytest.mark.slow
def test_a_relayed_message_that_is_rejected_ends_in_err(tmp_path):
    with relayed_to(tmp_path, "reject") as (pair, stands):
        ended = pair.relayed(pair.send(param1="a"))
        assert ended["state"] == "err"
        assert stands in ended["result"]["job_status"]


# ---- copies


def test_a_clone_joins_and_its_copy_is_discarded(tmp_path):
    script = "#!/bin/sh\necho done >&3\n"
    with running_queue(tmp_path, script, unique={"params": [1]}) as queue:
        file = tmp_path / "a.txt"
        file.write_text("x")
        old = prepare(queue)
        queue.ok("attach_message", {"msg_id": old, "pathname": str(file)})
        queue.ok("commit_message", {"msg_id": old})
        queue.ended(old)
        queue.configure(num_workers=0, unique={"params": [1]})
        queue.restart()
        stands, *_ = send(queue)
        assert short(queue.ok("clone_message", {"msg_id": old})) == stands
        assert queue.ask("num_messages")["prep"] == 0
        queue.configure(unique={"params": [1], "conflict": "reject"})
        queue.restart()
        assert stands in queue.refused("clone_message", {"msg_id": old})
        assert queue.ask("num_messages")["prep"] == 0
