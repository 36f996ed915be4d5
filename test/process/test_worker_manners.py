"""Scripts that misbehave: each ends in a defined state, and the queue lives on."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from harness.processes import end, lives
from harness.queues import SCRIPTS, RunningQueue, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
NOBODY = 65534
TOLD = "until [ -s child ]; do sleep 0.05; done"  # a child has written its pid


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root"), num_workers=2) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    assert shared.run(param1="echo done still here >&3")["state"] == "done"
    shared.check()


def cpu_seconds(pid):
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def leftover(queue, msg_id):
    """Return the pid that a script wrote into its file `child`."""
    return int((queue.folder(msg_id) / "job/child").read_text())


# ---- the pipe


@pytest.mark.slow
def test_a_script_that_closes_its_pipe_early_does_not_make_the_queue_spin(queue):
    before = cpu_seconds(queue.pid)
    message = queue.run(param1="echo done early >&3; exec 3>&- 4<&-; sleep 2")
    assert message["status"] == "done - early"
    # It runs for a moment before its owner looks at the clock.
    assert message["result"]["run_us"] > 1_900_000
    assert cpu_seconds(queue.pid) - before < 1


def test_a_child_that_keeps_the_pipe_open_does_not_hold_up_the_end(queue):
    message = queue.run(param1="sleep 60 & echo $! > child; echo done >&3")
    assert message["state"] == "done"
    assert not lives(leftover(queue, message["msg_id"]))


@pytest.mark.slow
def test_sixty_four_megabytes_of_garbage_are_read_and_forgotten(queue):
    script = "head -c 64M /dev/urandom >&3; echo >&3; echo done tired >&3"
    message = queue.run(param1=script, seconds=120)
    # Bytes at random may spell a word; they never did.
    assert message["status"] == "done - tired"


def test_others_are_answered_while_a_script_floods_its_pipe(queue):
    msg_id = queue.send(param1="yes 'run on and on' >&3")
    queue.until(msg_id, "run")
    slowest = 0.0
    for _ in range(10):
        began = time.monotonic()
        queue.ask("ping")
        slowest = max(slowest, time.monotonic() - began)
    queue.ok("destroy_message", {"msg_id": msg_id})
    assert queue.ended(msg_id)["result"]["cause"] == "cancelled"
    assert slowest < 15


# ---- ends that are none


def test_a_script_that_ignores_term_is_killed_after_the_grace(queue):
    msg_id = queue.send(
        param1="trap '' TERM; echo run set >&3; while :; do sleep 0.1; done"
    )
    wait_until(lambda: "set" in queue.get(msg_id)["status"])
    assert queue.ok("destroy_message", {"msg_id": msg_id}) == "msg destroyed"
    message = queue.ended(msg_id)
    assert message["state"] == "err"
    assert message["result"]["signal"] == "SIGKILL"
    assert message["result"]["cause"] == "cancelled"


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("kill -9 $$", "SIGKILL"),
        ("kill -SEGV $$", "SIGSEGV"),
        ("ulimit -t 1; while :; do :; done", "SIGKILL"),
    ],
)
def test_a_script_that_kills_itself_is_an_err_that_names_the_signal(queue, how, wanted):
    message = queue.run(param1=f"echo run nearly there >&3; {how}", seconds=120)
    assert message["state"] == "err"
    assert message["result"]["signal"] in (wanted, "SIGXCPU")
    assert "nearly there" in message["story"]["why"]


# ---- processes left behind


def test_a_double_fork_is_ended_before_its_message_goes_on(queue):
    script = "(sleep 60 & echo $! > child) & wait $!; echo done >&3"
    message = queue.run(param1=script)
    assert message["state"] == "done"
    assert not lives(leftover(queue, message["msg_id"]))


def test_a_child_in_a_session_of_its_own_is_ended_too(queue):
    script = f"setsid sh -c 'echo $$ > child; exec sleep 60' & {TOLD}; echo done >&3"
    message = queue.run(param1=script)
    assert message["state"] == "done"
    assert not lives(leftover(queue, message["msg_id"]))


def test_a_child_that_ignores_term_is_killed(queue):
    script = (
        "setsid sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep .1; done' & "
        f"{TOLD}; echo done >&3"
    )
    message = queue.run(param1=script)
    assert message["state"] == "done"
    assert not lives(leftover(queue, message["msg_id"]))


HIDDEN = (
    # Not every sh can close a descriptor of more than one digit.
    "bash -c \"setsid sh -c 'echo \\$\\$ > child; exec sleep 60' "
    '3>&- 4<&- 963>&- &"\nuntil [ -s child ]; do sleep 0.05; done\n'
    "if [ $RQ_COUNT = 0 ]; then echo resend 0-again >&3; exit; fi\n"
    "grep -q '^State:.[^ZX]' /proc/$(cat before)/status && echo err overlap >&3\n"
    "echo done alone >&3\n"
)


def test_a_hidden_child_is_found_before_its_message_runs_again(queue):
    message = queue.run(param1=f"[ -e child ] && mv child before\n{HIDDEN}")
    hidden = leftover(queue, message["msg_id"])
    try:
        assert message["state"] == "done"
    finally:
        end(hidden)


def test_children_are_left_alone_where_the_config_says_so(tmp_path):
    with running_queue(tmp_path, leave_children=True) as queue:
        message = queue.run(param1="sleep 60 & echo $! > child; echo done >&3")
        child = leftover(queue, message["msg_id"])
        try:
            assert message["state"] == "done"
            assert lives(child)
        finally:
            end(child)


# ---- the folder


@pytest.mark.parametrize("last", ["done gone", "err gone", "resend 0-gone"])
def test_a_script_that_removes_its_own_folder_loses_its_files_only(queue, last):
    script = f"[ $RQ_COUNT = 1 ] && last='done back' || last='{last}'\n"
    message = queue.run(param1=f'{script} rm -rf "$PWD/.."; echo "$last" >&3', zz=5)
    wanted = {"done gone": "done - gone", "err gone": "err - gone"}
    assert message["status"] == wanted.get(last, "done - back")
    assert message["zz"] == 5


RUINS = {
    "links that go in circles": "for n in $(seq 300); do ln -s x$n y$n; done; ln -s o o",
    "links out of the folder": "ln -s / root; ln -s ../../.. up; ln -s /etc/passwd .",
    "a log that is a link to itself": "rm stdio.log; ln -s stdio.log stdio.log",
    "a log that is a fifo": "rm stdio.log; mkfifo stdio.log",
    "a log that is a directory": "rm stdio.log; mkdir stdio.log",
    "a job that is a file": "rm -rf ../job; touch ../job",
    "a job that is a dangling link": "rm -rf ../job; ln -s nowhere ../job",
    "a status that is a directory": "rm -f ../status; mkdir ../status",
    "a status that is a fifo": "rm -f ../status; mkfifo ../status ../status.tmp",
    "a status that is a link": "ln -sf /nowhere/x ../status.tmp ; ln -sf . ../status",
    "a msg that is gone": "rm ../msg",
    "a msg that is a directory": "rm ../msg; mkdir ../msg ../msg.tmp",
    "a msg that is a fifo": "rm ../msg; mkfifo ../msg ../msg.tmp",
    "a msg that is garbage": "echo garbage > ../msg",
    "modes that allow nothing": "chmod 000 ../msg .. .",
    "a hundred levels": "for n in $(seq 100); do mkdir d; cd d; done; chmod 0 .",
}


@pytest.mark.parametrize("last", ["done", "err"])
@pytest.mark.parametrize("ruin", RUINS)
def test_a_ruined_folder_does_not_hold_up_the_queue(queue, ruin, last):
    message = queue.run(param1=f"exec >/dev/null 2>&1\n{RUINS[ruin]}\necho {last} >&3")
    assert message["state"] == last
    assert queue.ok("check") == {"problems": []}


@pytest.mark.parametrize("ruin", RUINS)
def test_a_message_with_a_ruined_folder_ends_and_others_run_meanwhile(queue, ruin):
    script = "exec >/dev/null 2>&1\n[ $RQ_COUNT = 0 ] || { echo done >&3; exit; }\n"
    bad = queue.send(param1=f"{script}{RUINS[ruin]}\necho resend 0-x >&3")
    assert queue.run(param1="echo done >&3")["state"] == "done"
    message = queue.ended(bad)
    assert "?" not in message["story"]["what"]
    if message["state"] == "err":
        assert message["result"]["cause"] == "bad_message"
        queue.ok("delete_message", {"msg_id": bad})
    assert queue.ask("status") == ["UP"]


@pytest.fixture(scope="module")
def unprivileged(tmp_path_factory):
    """A queue whose user is stopped by modes, as root is not."""
    root = tmp_path_factory.mktemp("plain")
    if os.geteuid() != 0:
        with running_queue(root) as queue:
            yield queue
        return
    top = Path(tempfile.gettempdir())
    for place in (root, *root.parents):
        if top not in place.parents:
            break
        place.chmod(0o755)
    queue = RunningQueue(root, "t", (SCRIPTS / "obey").read_text())
    for top, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            os.chown(os.path.join(top, name), NOBODY, NOBODY)
    try:
        queue.start(user=str(NOBODY))
        yield queue
        queue.close()
    finally:
        queue.kill()


@pytest.mark.parametrize("last", ["done", "err", "resend 0-x"])
def test_modes_that_stop_the_queue_are_put_right_by_it(unprivileged, last):
    queue = unprivileged
    script = (
        "[ $RQ_COUNT = 1 ] && { echo done >&3; exit; }\nmkdir sub; touch sub/x\n"
        f"chmod 000 sub ../msg .. .\necho {last} >&3"
    )
    bad = queue.send(param1=script)
    assert queue.run(param1="echo done >&3")["state"] == "done"
    message = queue.ended(bad)
    queue.check()
    queue.ok("delete_message", {"msg_id": message["msg_id"]})
    queue.check()
    wait_until(lambda: not (queue.dir.path / "gone" / bad).exists())
