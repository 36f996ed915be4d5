"""Whoever outlives a script and its parents is the queue's child: nobody need be looked
for among all processes of the machine, and whoever has ended is waited for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness.processes import end
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.proc.family import Family

pytestmark = pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(),
    reason="the kernel does not list children",
)
AGAIN = "[ $RQ_COUNT = 5 ] && echo done >&3 || echo resend 0-again >&3"


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
def test_a_resend_looks_at_no_process_but_its_own(tmp_path):
    with running_queue(tmp_path, num_workers=2) as queue:
        beside = queue.send(param1="sleep 600; echo done >&3")
        queue.until(beside, "run")
        trace = tmp_path / "trace"
        seen = "openat,open,pidfd_open"
        strace = subprocess.Popen(
            [
                "strace",
                "-qq",
                "-f",
                "-e",
                f"trace={seen}",
                "-o",
                trace,
                "-p",
                f"{queue.pid}",
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(trace.exists)
            wait_until(lambda: "TracerPid:\t0" not in status(queue.pid))
            assert queue.run(param1=AGAIN)["count"] == 5
        finally:
            strace.terminate()
            strace.wait()
        queue.ok("cancel_message", {"msg_id": beside})
        queue.ended(beside)
        assert "children" in trace.read_text()
        assert "/environ" not in trace.read_text()


def status(pid):
    return Path(f"/proc/{pid}/status").read_text()


def test_who_has_hidden_is_still_found_beside_a_script_at_work(tmp_path):
    script = (
        "[ -e child ] && mv child before\n"
        # Not every sh can close a descriptor of more than one digit.
        "bash -c \"setsid sh -c 'echo \\$\\$ > child; exec sleep 600' "
        '3>&- 4<&- 963>&- &"\nuntil [ -s child ]; do sleep 0.05; done\n'
        "if [ $RQ_COUNT = 0 ]; then echo resend 0-again >&3; exit; fi\n"
        # One that the kernel still takes apart has no command line any more.
        "grep -q . /proc/$(cat before)/cmdline && echo err overlap >&3\n"
        "echo done alone >&3\n"
    )
    with running_queue(tmp_path, num_workers=2) as queue:
        beside = queue.send(param1="sleep 600; echo done >&3")
        queue.until(beside, "run")
        message = queue.run(param1=script)
        hidden = int((queue.folder(message["msg_id"]) / "job/child").read_text())
        try:
            assert message["state"] == "done"
            queue.ok("cancel_message", {"msg_id": beside})
            queue.ended(beside)
        finally:
            end(hidden)


@pytest.mark.slow
def test_what_is_left_and_ends_by_itself_does_not_stay_as_a_zombie(tmp_path):
    script = "for i in 1 2 3; do (setsid sleep 0.2 &); done; echo done >&3"
    with running_queue(tmp_path, leave_children=True) as queue:
        for _ in range(3):
            assert queue.run(param1=script)["state"] == "done"
        wait_until(lambda: not strangers(queue.pid))


def strangers(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_child_that_has_ended_before_its_script_is_not_taken_for_one_that_lives(
    tmp_path,
):
    with running_queue(tmp_path) as queue:
        assert (
            queue.run(param1="(true &); true & sleep 0.1; echo done >&3")["state"]
            == "done"
        )
        assert "left processes behind" not in queue.log()


def test_a_family_tells_its_own_from_strangers():
    family = Family()
    one = subprocess.Popen(["sleep", "600"])
    try:
        assert one.pid in family.strangers()
        family.began(one.pid)
        assert one.pid not in family.strangers()
        family.ended(one.pid)
        one.kill()
        wait_until(lambda: one.pid not in family.strangers())
    finally:
        one.kill()
        one.wait()
