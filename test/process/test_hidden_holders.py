"""Processes that hide what they hold open, as ssh-agent does, under a user's RQ."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.processes import end, lives, only_root
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until

from rq.proc import processes

pytestmark = [pytest.mark.process, only_root]
NOBODY = 65534
AGENT = (
    "setsid {root}/agent 300 > /dev/null 2>&1 3>&- 4<&- &\n"
    "echo $! > child; until grep -q agent /proc/$!/comm; do sleep 0.05; done\n"
    "echo {word} >&3\n"
)


class UsersQueue(RunningQueue):
    """A queue of a user who may not look into programs that he may only execute: the
    kernel makes them undumpable."""

    def __init__(self, root):
        super().__init__(root, "t", "obey\n", num_workers=2)
        self.script.write_text('#!/bin/sh\neval "$RQ_PARAM1"\n')
        for name, program in (("agent", "sleep"), ("shell", "sh")):
            shutil.copy(shutil.which(program), root / name)
        for top, folders, files in os.walk(root):
            for name in (".", *folders, *files):
                os.chown(os.path.join(top, name), NOBODY, NOBODY)
        for name in ("agent", "shell"):
            os.chown(root / name, 0, 0)
            (root / name).chmod(0o711)

    def start(self, **more):
        super().start(user=str(NOBODY), **more)

    def child(self, msg_id):
        place = self.root.path / self.get(msg_id)["path"]
        return int((place / "job/child").read_text())


@pytest.fixture
def queue():
    # Beside pytest's own directories, which every other run of it closes to others.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with kept(UsersQueue(Path(place))) as queue:
            yield queue


def held(queue, msg_id):
    """Wait until a message is told to be held; return its story."""
    wait_until(lambda: "slot" in queue.get(msg_id)["story"]["why"])
    return queue.get(msg_id)["story"]


@pytest.mark.slow
@pytest.mark.parametrize("word", ["done", "resend 0-again"])
def test_a_message_stays_in_run_while_a_hidden_process_holds_its_slot(queue, word):
    first = "[ $RQ_COUNT = 1 ] && { echo done alone >&3; exit; }\n"
    agent = AGENT.format(root=queue.root.path, word=word)
    msg_id = queue.send(param1=first + agent)
    queue.until(msg_id, "run")
    wait_until(lambda: queue.child(msg_id))
    child = queue.child(msg_id)
    try:
        story = held(queue, msg_id)
        assert f"process {child} (agent)" in story["why"]
        assert lives(child)
        assert queue.state(msg_id) == "run"
        assert queue.run(param1="echo done beside >&3")["state"] == "done"
        (told,) = queue.ok("detail")["held"]
        assert (told["msg_id"], str(child) in told["by"]) == (msg_id, True)
    finally:
        end(child)
    assert queue.ended(msg_id)["state"] == "done"
    assert queue.ok("detail")["held"] == []


@pytest.mark.slow
def test_a_hidden_process_of_the_scripts_group_is_killed(queue):
    stubborn = "trap '' TERM; while :; do sleep 0.1; done"
    msg_id = queue.send(
        param1=f'{queue.root.path}/shell -c "{stubborn}" >/dev/null 2>&1 3>&- 4<&- &\n'
        "echo $! > child; echo done >&3"
    )
    message = queue.ended(msg_id)
    assert message["state"] == "done"
    child = queue.child(msg_id)
    wait_until(lambda: not lives(child))  # the kernel may still take it apart


@pytest.mark.slow
def test_a_slot_that_is_held_from_before_keeps_only_its_own_message(queue):
    agent = AGENT.format(root=queue.root.path, word="run on")
    again = "[ $RQ_COUNT = 1 ] && exec echo done >&3"
    msg_id = queue.send(param1=f"{again}\n{agent}sleep 300")
    wait_until(lambda: queue.get(msg_id)["status"] == "run - on")
    child = queue.child(msg_id)
    try:
        queue.crash()
        queue.start()
        assert queue.run(param1="echo done beside >&3")["state"] == "done"
        story = held(queue, msg_id)
        assert f"process {child} (agent)" in story["why"]
        assert queue.state(msg_id) == "run"
    finally:
        end(child)
    assert queue.ended(msg_id)["state"] == "done"


ZOMBIE = """
import os, subprocess, sys
from rq.proc import processes

os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
child = subprocess.Popen(["true"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays
try:
    os.listdir(f"/proc/{child.pid}/fd")
except PermissionError:
    print("hides", child.pid in [one.pid for one in processes.find_hidden(0.0)])
"""


def test_what_has_ended_and_is_not_waited_for_holds_nothing():
    words = [sys.executable, "-c", ZOMBIE, str(NOBODY)]
    run = subprocess.run(
        words, cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "hides False"


def test_a_process_cannot_name_itself_another_users():
    """Its name stands in the first line of its status, and may hold a CR."""
    code = "open('/proc/self/comm', 'w', newline='').write('\\rUid:\\t7\\t7\\t7'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert processes._uids(process.pid) == {os.getuid()}
        process.communicate(b"\n")
