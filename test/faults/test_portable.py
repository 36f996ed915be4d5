"""Machines that lack what Linux has: no pidfd, no /proc, no openat2, no control groups. RQ
goes another way, and keeps what it promises."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys

import pytest
from harness.queues import RunningQueue
from harness.supervisor import daemon_on
from harness.waiting import wait_until
from harness.without import refusing

pytestmark = pytest.mark.process

PATIENCE = 30
HIDE = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
NO_GROUPS = [*HIDE[:4], HIDE[4].replace("/proc", "/sys/fs/cgroup"), "sh"]


@pytest.fixture(
    params=["ENOSYS", "EPERM"]
)  # an old kernel; a container that forbids it
def no_pidfd(request, compiled, tmp_path):
    """Give the environment of a machine without pidfd."""
    number = str(getattr(errno, request.param))
    return {"LD_PRELOAD": str(compiled("pidfd.c", tmp_path)), "PIDFD_ERRNO": number}


def done(queue, msg_id):
    queue.until(msg_id, "done", PATIENCE)


# ---- no pidfd


def test_scripts_run_and_what_they_leave_is_ended_without_pidfds(site, no_pidfd):
    site.act("linger", "( setsid sleep 300 & )")
    site.act("dies", "kill -9 $$")
    queue = site.queue(num_workers=2).start(**no_pidfd)
    for act in ("", "linger"):
        done(queue, queue.submit(act))
    queue.until(queue.submit("dies"), "err", PATIENCE)
    assert not site.holders()
    queue.prove()


def test_what_a_dead_owner_left_is_ended_without_pidfds(site, no_pidfd):
    queue = site.queue(num_workers=2).start(**no_pidfd)
    running = queue.submit("hold")
    queue.until_started(running)
    queue.kill()
    queue.start(**no_pidfd)
    done(queue, running)  # held only the first time
    assert len(site.ran("start", running)) == 2
    queue.prove()


@pytest.mark.slow
def test_a_supervisor_minds_its_children_without_pidfds(tmp_path, no_pidfd):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.env = no_pidfd
        daemon.start()
        asked = {"name": "q", "script": str(daemon.script), "exec_prefix": ""}
        assert daemon.ask("create_queue", asked)[0] == "success"
        for name in ("q", "timers"):
            before = daemon.kill(name)
            wait_until(lambda b=before, n=name: daemon.child(n)["pid"] != b, PATIENCE)
            daemon.until_up(name, PATIENCE)
        assert daemon.ask_queue("q", "create_message", {"dest": "q"})[0] == "ok"
        wait_until(lambda: daemon.ask_queue("q", "num_messages")["done"] == 1, PATIENCE)
        assert daemon.stop() == 0
        wait_until(lambda: not daemon.processes(), PATIENCE)


# ---- no /proc


@pytest.fixture
def hidden(tmp_path):
    """Give a queue that is to be started with HIDE."""
    if os.geteuid() != 0 or subprocess.run([*HIDE, "true"], check=False).returncode:
        pytest.skip("/proc is hidden as root -> sudo ./test/run_tests.sh faults")
    queue = RunningQueue(tmp_path / "root", "t", HOLD)
    try:
        yield queue
    finally:
        queue.kill()
        for pid in started(queue):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


HOLD = """#!/bin/sh
echo $$ >> "$RQ_ROOT/ran"
until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done
echo done >&3
"""


def started(queue):
    with contextlib.suppress(FileNotFoundError):
        return [int(one) for one in (queue.root.path / "ran").read_text().split()]
    return []


def test_messages_run_without_proc(hidden):
    (hidden.root.path / "go").touch()
    hidden.start(HIDE)
    assert hidden.run(PATIENCE)["state"] == "done"
    hidden.close()


@pytest.mark.slow
def test_no_second_attempt_beside_one_that_cannot_be_found_without_proc(hidden):
    hidden.start(HIDE)
    msg_id = hidden.send()
    [pid] = wait_until(lambda: started(hidden), PATIENCE)
    hidden.crash()
    hidden.start(HIDE)
    why = hidden.get(msg_id)["story"]["why"]
    assert why.startswith("A process that RQ cannot see holds its slot")
    assert started(hidden) == [pid]
    os.killpg(pid, signal.SIGKILL)
    (hidden.root.path / "go").touch()
    hidden.until(msg_id, "done", seconds=PATIENCE)
    assert len(started(hidden)) == 2
    hidden.close()


# ---- no openat2


FILES = """#!/bin/sh
ln -s /etc/passwd link; mkdir -p deep/er; echo text > deep/er/file; echo printed
echo done >&3
"""


@pytest.mark.parametrize("code", ["ENOSYS", "EPERM"])
def test_files_of_scripts_are_read_and_removed_without_openat2(tmp_path, code):
    queue = RunningQueue(tmp_path / "root", "t", FILES)
    before = refusing(openat2=code)
    told = "from rq.files import beneath; print(beneath._open.__name__)"
    asked = subprocess.run([*before, sys.executable, "-c", told], stdout=-1, check=True)
    assert asked.stdout == b"by_steps\n"
    try:
        queue.start(before)
        message = queue.run(PATIENCE)
        assert message["state"] == "done"
        assert "printed" in queue.output(message["msg_id"])
        folder = queue.folder(message["msg_id"])
        queue.ok("delete_message", {"msg_id": message["msg_id"]})
        wait_until(lambda: not folder.exists(), PATIENCE)
        queue.close()
    finally:
        queue.kill()


# ---- no control groups


HOG = "#!/bin/sh\nexec python3 -c \"x = []\nwhile True: x.append(b'x' * (1 << 20))\"\n"


def test_a_memory_hog_is_ended_without_control_groups(tmp_path):
    if os.geteuid() or subprocess.run([*NO_GROUPS, "true"], check=False).returncode:
        pytest.skip("groups are hidden as root -> sudo ./test/run_tests.sh faults")
    queue = RunningQueue(tmp_path / "root", "t", HOG)
    try:
        queue.start(NO_GROUPS)
        message = queue.run(PATIENCE, memory="300 MiB")
        assert (message["state"], message["result"]["cause"]) == ("err", "memory")
        queue.close()
    finally:
        queue.kill()
