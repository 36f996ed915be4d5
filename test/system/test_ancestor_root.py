"""RQ on a root that the ancestor left: its queues, states, flags and timers go on."""

import json
from pathlib import Path

import pytest
from harness import ancestor
from harness.cli import rq, running
from harness.ports import free_port
from harness.waiting import wait_until

from rq.layout import Root
from rq.rpc import client
from rq.spool import check

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("old") / "root"
    ancestor.build(path, free_port())
    with running(path):
        accepted = rq("restore", "accept", root=path)  # its timers, too
        assert accepted.returncode == 0, accepted.stderr
        yield Root(path)
    for name in ("work", "resting", "stopped"):
        assert check.check(Root(path).queue(name)) == []


def ask(root, queue, command, arg=b""):
    return client.ask(root.queue(queue).socket, command, arg, timeout=30)


def get(root, msg_id):
    queue, _ = ancestor.ANCESTOR[msg_id]
    word, found = ask(root, queue, "get_message", {"msg_id": msg_id})
    assert word == "ok", found
    return found


def until(root, msg_id, state):
    wait_until(lambda: get(root, msg_id)["state"] == state, 60)
    ask(root, ancestor.ANCESTOR[msg_id][0], "check")  # its folder follows
    return get(root, msg_id)


@pytest.mark.slow
def test_its_queues_run_with_their_configs(root):
    names = client.ask(root.supervisor_socket, "queues")
    assert {"work", "resting", "stopped"} <= set(names)
    assert "rq_router" not in names
    assert not any("deleted" in name for name in names)
    config = ask(root, "work", "config")[1]
    assert config["num_workers"] == 2
    script = Path(root.path, config["script"]).resolve()
    assert script == root.path / "default_scripts/work/run"


def test_its_flags_hold(root):
    wait_until(lambda: ask(root, "stopped", "status"), 60)
    assert ask(root, "stopped", "status") == ["DOWN"]
    assert ask(root, "resting", "status") == ["PAUSE"]
    assert get(root, ancestor.PAUSED_WAITING)["state"] == "que"


def test_what_waited_runs(root):
    message = until(root, ancestor.WAITING, "done")
    assert message["status"] == "done - ran with first"
    assert message["invoice"] == {"kept": True}
    assert message["src"] == "ancestor"


def test_what_ran_when_it_died_runs_again_in_its_old_directory(root):
    message = until(root, ancestor.RUNNING, "done")
    assert message["status"] == "done - ran with second"
    log = (root.path / message["path"] / "job/stdio.log").read_text()
    assert "RQ START - /x/run\nhalf\n" in log
    assert log.count("RQ START") == 2


@pytest.mark.parametrize("msg_id", [ancestor.LATER, ancestor.TEXT_DUE])
def test_what_is_not_due_waits_on(root, msg_id):
    message = get(root, msg_id)
    assert message["state"] == "que"
    assert message["due"] == ancestor.FAR_AWAY
    assert message["count"] == (3 if msg_id == ancestor.TEXT_DUE else 0)


def test_what_had_ended_is_found_where_it_was(root):
    for msg_id, state, status in (
        (ancestor.DONE, "done", "done - done sleeping"),
        (ancestor.DONE_WITH_FILE, "done", "done"),
        (ancestor.FAILED, "err", "err - fail RQ_COUNT > 15"),
        (ancestor.ACKNOWLEDGED, "err", "err - seen"),
    ):
        message = get(root, msg_id)
        assert (message["state"], message["status"]) == (state, status)
        assert message["path"] == f"queue/work/{ancestor.ANCESTOR[msg_id][1]}"
        assert "?" not in message["story"]["what"]
    assert get(root, ancestor.RELAYED)["status"].startswith("relayed - http://other.")
    assert get(root, ancestor.PREPARED)["state"] == "prep"


def test_it_is_counted(root):
    until(root, ancestor.WAITING, "done")
    until(root, ancestor.RUNNING, "done")
    wait_until(lambda: of_timer(root), 60)
    counts = ask(root, "work", "num_messages")
    # The timer fires at once when it is new to RQ.
    counts["done"] -= len(of_timer(root))
    assert counts == {"prep": 1, "que": 2, "run": 0, "done": 4, "relayed": 1, "err": 1}


def of_timer(root):
    rows = ask(root, "work", "list", {"state": "done", "limit": 0})[1]
    return [one for one in rows if one.get("param1") == "from the timer"]


def test_its_timer_fires(root):
    wait_until(lambda: of_timer(root), 60)
    assert of_timer(root)[0]["status"] == "done - ran with from the timer"


def test_what_he_prepared_is_committed_with_its_files(root):
    asked = {"msg_id": ancestor.PREPARED}
    attach = root.queue("work").path / f"prep/{ancestor.PREPARED}/attach"
    attach.mkdir(exist_ok=True)
    (attach / "dog.jpg").write_bytes(ancestor.ATTACHED)
    assert ask(root, "work", "commit_message", asked) == ["ok", "msg commited"]
    message = until(root, ancestor.PREPARED, "done")
    assert (
        message["_attachments"]["dog.jpg"]["sha256"] == ancestor.digest_of_attachment()
    )
    assert (root.path / message["path"] / "attach/dog.jpg").exists()


def test_a_message_of_his_can_be_cloned_and_its_file_of_his_travels(root):
    word, full_id = ask(
        root, "work", "clone_message", {"msg_id": ancestor.DONE_WITH_FILE}
    )
    assert word == "ok"
    assert full_id.startswith(f"{ancestor.HOST.rpartition(':')[0]}:")
    short = full_id.rpartition("/")[2]
    asked = {"msg_id": short}
    wait_until(
        lambda: ask(root, "work", "get_message_state", asked) == ["ok", "done"], 60
    )
    ask(root, "work", "check")  # its folder follows
    path = root.path / ask(root, "work", "get_message", asked)[1]["path"]
    assert (path / "attach/cat photo.jpg").read_bytes() == ancestor.ATTACHED
    ask(root, "work", "delete_message", asked)


def test_a_failed_message_can_be_sent_round_again(root):
    asked = {"msg_id": ancestor.FAILED}
    assert ask(root, "work", "retry_message", asked)[0] == "ok"
    message = until(root, ancestor.FAILED, "done")
    assert message["status"] == "done - ran with third"
    assert (root.path / message["path"] / "resend").exists()


def test_a_queue_that_is_brought_up_goes_on(root):
    client.ask(root.supervisor_socket, "resume_queue", b"resting")
    until(root, ancestor.PAUSED_WAITING, "done")


@pytest.mark.slow
def test_his_deleted_queue_is_left_alone(root):
    config = root.queues / "gone.deleted.1234/config.json"
    assert json.loads(config.read_text())["name"] == "gone.deleted.1234"
    assert not (root.queues / "gone.deleted.1234/queue.sock").exists()
