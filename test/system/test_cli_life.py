"""The new verbs against a running RQ: one message's life as an operator sees it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from harness.checkout import CHECKOUT
from harness.cli import define, rq, run, running
from harness.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.long]

WORK = """#!/bin/sh
case $RQ_PARAM1 in
fail) echo "breaking"; echo "err it broke" >&3 ;;
hold) echo "begun"; echo "run holding" >&3
      while [ ! -e "$RQ_PARAM2" ]; do sleep 0.05; done
      echo "ended"; echo "done let go" >&3 ;;
again) if [ "$RQ_COUNT" -eq 0 ]; then echo "first"; echo "resend 1-later" >&3
       else echo "second"; echo "done at last" >&3; fi ;;
*) echo "got $RQ_PARAM1"; echo "done fine" >&3 ;;
esac
"""

# Two messages in one process.
PAIR = """#!/bin/sh
if grep -q '"param1":"hold"' "$RQ_BATCH_FILE"; then
    echo "run holding" >&3
    while :; do sleep 0.05; done
fi
if grep -q '"count":0' "$RQ_BATCH_FILE"; then
    echo "first"; echo "resend 1-later" >&3
else
    echo "second"; echo "done at last" >&3
fi
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("life") / "root"
    path.mkdir()
    define(path, "work", WORK, num_workers=4)
    define(path, "pairs", PAIR, batch={"max": 2, "wait": "1h"})
    with running(path):
        yield path


def ok(root, *words):
    done = rq(*words, root=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number_of_messages(root):
    return sum(json.loads(ok(root, "ls", "work", "--count", "--json"))["work"].values())


def sent(root, *words):
    return ok(root, "send", "work", "--id-only", *words).strip()


def shown(root, msg_id):
    return json.loads(ok(root, "show", msg_id, "--json"))


@pytest.mark.slow
def test_send_and_wait_tells_what_became_of_it(root):
    done = rq("send", "work", "-p1", "x", "--wait", root=root)
    assert done.returncode == 0
    assert done.stdout.startswith("sent work/")
    assert " done: It succeeded" in done.stderr
    failed = rq("send", "work", "-p", "1=fail", "--wait", root=root)
    assert failed.returncode == 8
    assert "it broke" in failed.stderr


def test_send_with_a_file_names_its_digest_in_show(root, tmp_path):
    file = tmp_path / "a file.txt"
    file.write_text("content")
    msg_id = sent(root, "-a", str(file), "--wait")
    found = shown(root, msg_id)["_attachments"]["a file.txt"]
    assert found["size"] == 7
    assert len(found["sha256"]) == 64
    assert found["sha256"] in ok(root, "show", msg_id)


def test_a_file_that_is_not_there_sends_nothing(root, tmp_path):
    before = number_of_messages(root)
    done = rq("send", "work", "-a", tmp_path / "none", root=root)
    assert done.returncode == 2
    assert number_of_messages(root) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--wait", "--timeout", "soon"], "not a duration"),
        (["-p1", os.fsdecode(b"caf\xe9")], "cannot be sent as JSON"),
        (["--src", os.fsdecode(b"\xff")], "cannot be sent as JSON"),
    ],
)
def test_words_that_cannot_be_meant_send_nothing(root, words, said):
    before = number_of_messages(root)
    done = rq("send", "work", *words, root=root)
    assert done.returncode == 2
    assert said in done.stderr
    assert number_of_messages(root) == before


def test_follow_says_after_each_attempt_why_its_message_waits(root):
    done = rq("send", "work", "-p1", "again", "--follow", root=root)
    assert done.stdout.count("RQ START") == 2
    assert "it waits: " in done.stderr


def test_follow_shows_the_log_across_attempts_and_ends_with_the_message(root):
    done = rq("send", "work", "-p1", "again", "--follow", root=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("first\n") < done.stdout.index("second\n")


@pytest.mark.slow
def test_logs_f_shows_lines_as_they_are_written(root, tmp_path):
    gate = tmp_path / "gate"
    msg_id = sent(root, "-p1", "hold", "-p2", str(gate))
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.cli", "--root", str(root), "logs", "-f", msg_id],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    with process:
        line = ""
        while line != "begun\n":
            line = process.stdout.readline()
            assert line, "the log ended before the script did"
        gate.touch()
        rest = process.stdout.read()
    assert "ended\n" in rest
    assert process.returncode == 0
    assert ok(root, "logs", msg_id).endswith(rest[-20:])
    assert ok(root, "logs", "--tail", "1", msg_id) == rest.splitlines(True)[-1]


def test_a_waiting_message_runs_at_once_with_run_and_is_removed_by_cancel(root):
    late = sent(root, "--due", "+1h")
    assert shown(root, late)["state"] == "que"
    assert rq("wait", late, "--timeout", "0.2", root=root).returncode == 7
    refused = rq("cancel", late, root=root)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    ok(root, "run", late)
    ok(root, "wait", late)
    later = sent(root, "--due", "+1h")
    ok(root, "cancel", later, "--yes")
    assert rq("show", later, root=root).returncode == 3


@pytest.mark.slow
def test_cancel_asks_a_person_and_takes_no_for_an_answer(root):
    late = sent(root, "--due", "+1h")
    assert answered(root, "n", "cancel", late) == f"work/{late} kept\n"
    assert shown(root, late)["state"] == "que"
    assert answered(root, "y", "cancel", late) == f"work/{late} is deleted\n"
    assert rq("show", late, root=root).returncode == 3


def answered(root, answer, *words):
    """Run rq at a terminal, answer its question, return what it printed."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.cli", "--root", str(root), *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    os.close(theirs)
    asked = b""
    while not asked.endswith(b"[y/N] "):
        asked += os.read(ours, 1024)
    os.write(ours, f"{answer}\n".encode())
    with process:
        printed = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    return printed


@pytest.fixture
def heeded():
    """What is started heeds an interrupt, also when a shell without job control has
    started the tests with `&`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_an_interrupt_ends_a_verb_quietly_with_130(root, tmp_path):
    gate = tmp_path / "gate"
    msg_id = sent(root, "-p1", "hold", "-p2", str(gate))
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.cli", "--root", str(root), "logs", "-f", msg_id],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    with process:
        while process.stdout.readline() != "begun\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 130
    gate.touch()
    ok(root, "wait", msg_id)


def test_cancel_of_a_running_message_ends_it_as_err_by_name(root, tmp_path):
    msg_id = sent(root, "-p1", "hold", "-p2", str(tmp_path / "never"))
    wait_until(lambda: shown(root, msg_id)["status"] == "run - holding", 60)
    refused = rq("delete", msg_id, "--yes", root=root)
    assert refused.returncode == 4
    ok(root, "cancel", msg_id)
    assert rq("wait", msg_id, root=root).returncode == 8
    assert "cancelled by" in shown(root, msg_id)["status"]
    assert "err (cancelled)" in ok(root, "show", msg_id)
    # It is no error to look at.
    assert shown(root, msg_id)["acknowledged"]
    assert msg_id not in ok(root, "ls", "work", "--state", "err")
    assert "cancelled by" in ok(root, "ls", "work", "--state", "dismissed")


def test_cancel_of_one_of_a_batch_tells_how_to_end_them_all(root):
    one, two = (
        ok(root, "send", "pairs", "--id-only", "-p1", "hold").strip() for _ in range(2)
    )
    wait_until(lambda: shown(root, two)["status"] == "run - holding", 60)
    refused = rq("cancel", one, root=root)
    assert refused.returncode == 4
    assert f"`rq cancel --batch {one.rpartition('/')[2]}`" in refused.stderr
    assert "batch" in ok(root, "show", two)
    assert ok(root, "ls", "pairs").count("[batch of 2] holding") == 2
    assert "its batch" in ok(root, "cancel", "--batch", one)
    for msg_id in (one, two):
        assert rq("wait", msg_id, root=root).returncode == 8
        assert "cancelled by" in shown(root, msg_id)["status"]


def test_follow_shows_the_logs_of_one_batch_after_the_other(root):
    ok(root, "send", "pairs", "--id-only", "-p1", "x")
    done = rq("send", "pairs", "-p1", "y", "--follow", root=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("first\n") < done.stdout.index("second\n")


def test_retry_sends_a_failed_message_round_again_under_its_id(root):
    msg_id = sent(root, "-p1", "fail")
    assert rq("wait", msg_id, root=root).returncode == 8
    ok(root, "retry", msg_id)
    wait_until(lambda: ok(root, "logs", msg_id).count("RQ START") == 2, 60)
    assert rq("wait", msg_id, root=root).returncode == 8
    assert rq("retry", sent(root, "--wait"), root=root).returncode == 4
    one, two = sent(root, "--wait"), sent(root, "--wait")
    refused = rq("retry", one, two, root=root).stderr
    assert one in refused
    assert two in refused


def test_ack_and_delete_of_failed_messages(root):
    one, two = sent(root, "-p1", "fail"), sent(root, "-p1", "fail")
    assert rq("wait", one, two, root=root).returncode == 8
    ok(root, "ack", one)
    assert one not in ok(root, "ls", "work", "--state", "err")
    assert two in ok(root, "ls", "work", "--state", "err")
    ok(root, "delete", two, "--yes")
    assert rq("show", two, root=root).returncode == 3
    assert "acknowledged" in ok(root, "ack", "--all", "work")


def test_ls_json_has_stable_keys(root):
    msg_id = sent(root, "--due", "+1h", "-p1", "listed")
    rows = json.loads(ok(root, "ls", "work", "--state", "que", "--json"))
    row = next(one for one in rows if one["msg_id"] == msg_id)
    assert {"queue", "state", "msg_id", "due", "count", "attempt", "status"} <= set(row)
    assert row["param1"] == "listed"
    ok(root, "cancel", msg_id, "--yes")


def queue_status(root, name):
    rows = json.loads(ok(root, "queue", "ls", "--json"))
    return next(row["status"] for row in rows if row["name"] == name)


def test_a_paused_queue_takes_messages_and_a_queue_that_is_down_refuses(root):
    ok(root, "queue", "pause", "work")
    wait_until(lambda: queue_status(root, "work") == "PAUSE", 60)
    msg_id = sent(root)
    assert "paused" in shown(root, msg_id)["story"]["why"]
    ok(root, "queue", "resume", "work")
    ok(root, "wait", msg_id)
    ok(root, "queue", "down", "work")
    wait_until(lambda: queue_status(root, "work") == "DOWN", 60)
    assert rq("send", "work", root=root).returncode == 4
    ok(root, "queue", "up", "work")
    wait_until(lambda: queue_status(root, "work") == "UP", 60)
    ok(root, "queue", "restart", "work")
    wait_until(lambda: rq("send", "work", "--wait", root=root).returncode == 0, 60)
    assert rq("queue", "pause", "nosuch", root=root).returncode == 3


def test_status_timer_trash_version_and_check_of_a_running_rq(root):
    status = rq("status", root=root)
    assert "RQ " in status.stdout
    facts = json.loads(rq("status", "--json", root=root).stdout)
    assert facts["running"] is True
    # Tests before this one have left errors, each with its sentence.
    assert status.returncode == bool(facts["trouble"]) == ("! " in status.stdout)
    assert json.loads(ok(root, "timer", "ls", "--json")) == []
    assert json.loads(ok(root, "trash", "ls", "--json")) == []
    assert "running in" in ok(root, "version")
    assert "agree" in ok(root, "check")
    assert "agree" in ok(root, "check", "--fix")


# ---- up and down


@pytest.mark.slow
def test_the_first_up_shows_three_samples_and_a_second_is_quick(tmp_path):
    root = tmp_path / "root"
    try:
        piped = subprocess.run(
            ["/bin/sh", "-c", f"{sys.executable} -m rq.cli --root {root} up | tee x"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        first = piped.stdout
        assert "step 1 of 6\n" in first
        assert "step 6 of 6\n" in first
        rows = [line.split() for line in first.splitlines() if line.startswith("demo/")]
        assert [row[1] for row in rows] == ["done", "err", "done"]
        assert [row[2] for row in rows] == ["1", "1", "2"]
        assert "where to look next" in first
        began = time.monotonic()
        second = rq("up", root=root)
        assert time.monotonic() - began < 60
        assert second.returncode == 0
        assert "sent" not in second.stdout
        counts = json.loads(ok(root, "queue", "ls", "--json"))
        assert sum(sum(row["counts"].values()) for row in counts) == 3
        assert {row["name"] for row in counts} >= {"cleaner", "rq_router", "webhook"}
        ok(root, "send", "cleaner", "--wait")
        done = json.loads(ok(root, "ls", "cleaner", "--state", "done", "--json"))
        assert done[0]["status"].startswith("done - removed 0 messages of ")
        assert "examples/README.md" in ok(root, "demo")
    finally:
        ended = rq("down", root=root)
    assert "RQ has stopped" in ended.stdout
    assert rq("down", root=root).returncode == 0
    assert "may lag behind" not in rq("ls", root=root).stderr


@pytest.mark.slow
def test_after_kill_9_every_verb_says_what_to_do(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    define(root, "work", WORK)
    with running(root):
        sent(root, "--wait")
        facts = json.loads(ok(root, "status", "--json"))["supervisor"]
        pids = [one["pid"] for one in facts["children"] if one["pid"]]
        for pid in (facts["pid"], *pids):
            with contextlib.suppress(ProcessLookupError):  # some end with the first
                os.kill(pid, signal.SIGKILL)
        told = "may lag behind: run `rq check --fix`"
        wait_until(lambda: told in rq("ls", root=root).stderr, 60)
        assert rq("check", "--fix", root=root).returncode in (0, 9)
        assert rq("check", root=root).returncode == 0
        assert told not in rq("ls", root=root).stderr


@pytest.mark.slow
def test_a_taken_port_names_its_holder_and_another_is_used(tmp_path):
    import socket

    root = tmp_path / "root"
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 3333))
            sock.listen()
            ours = True
        except OSError:  # another RQ of this machine has it, as long as it likes
            ours = False
        try:
            done = rq("up", "--no-samples", root=root)
        finally:
            rq("down", root=root)
    port = json.loads((root / "config/config.json").read_text())["port"]
    if ours:
        assert "port 3333 is taken by " in done.stdout
        assert f"(pid {os.getpid()})" in done.stdout
        assert port > 3333


@pytest.mark.slow
def test_an_operator_who_removed_a_bundled_queue_does_not_get_it_back(tmp_path):
    root = tmp_path / "root"
    assert run("rq.cli.install", root=root).returncode == 0
    (root / "scandir/debug").unlink()
    with running(root):
        assert not (root / "scandir/debug").exists()
        assert (root / "scandir/demo").exists()


@pytest.mark.slow
def test_up_after_an_update_restarts_what_runs_gracefully(tmp_path):
    root, copy = tmp_path / "root", tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(CHECKOUT / "rq", copy / "rq", ignore=ignored)
    env = {"PYTHONPATH": str(copy)}
    # The supervisor is started with -I, which leaves PYTHONPATH out: it runs the same
    # source from the checkout, whose times and sizes differ from the copy's once changed.
    try:
        assert rq("up", "--no-samples", root=root).returncode == 0
        before = json.loads(ok(root, "status", "--json"))["supervisor"]["pid"]
        with (copy / "rq/__init__.py").open("a") as file:
            file.write("# an update\n")
        config = root / "config/config.json"
        good = config.read_text()
        config.write_text("{")
        done = rq("up", root=root, env=env, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), "it stopped what runs"
        assert json.loads(ok(root, "status", "--json"))["supervisor"]["pid"] == before
        config.write_text(good)
        done = rq("up", root=root, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "RQ runs with older code" in done.stdout
        assert json.loads(ok(root, "status", "--json"))["supervisor"]["pid"] != before
    finally:
        rq("down", root=root)
