"""Locks: who may read RQ's files cannot hold them, which would stop RQ."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.installation import as_user
from harness.processes import only_root, open_to_others
from harness.supervisor import Daemon
from harness.waiting import wait_until

from rq import logs
from rq.proc import locks

pytestmark = pytest.mark.process

SLOW = "#!/bin/sh\nread answer <&4\n"


def locked_files(root: Path) -> dict[str, int]:
    """Return the files below `root` that some process has locked, and their modes."""
    lines = Path("/proc/locks").read_text().splitlines()
    inodes = {int(word.split(":")[2]) for line in lines for word in [line.split()[5]]
              if word.count(":") == 2}  # fmt: skip
    found = {}
    for path in root.rglob("*"):
        info = path.lstat()
        if info.st_ino in inodes:
            found[str(path.relative_to(root))] = info.st_mode & 0o777
    return found


def with_lease(root: Path) -> dict[str, int]:
    """Return the locked files once that of a message at work is one of them; OSError
    when one goes while it is looked at."""
    found = locked_files(root)
    return found if "queue/t/lease/0" in found else {}


@pytest.mark.slow
def test_no_lock_that_rq_holds_can_be_taken_by_who_may_only_read(tmp_path):
    daemon = Daemon(tmp_path)
    daemon.script.write_text(SLOW)
    try:
        daemon.start()
        daemon.create("t")
        daemon.ask_queue("t", "create_message", {"dest": "t"})
        found = wait_until(lambda: with_lease(tmp_path))
    finally:
        daemon.close()
    assert {"config/queuemgr.lock", "queue/t/lock"} <= found.keys()
    assert set(found.values()) == {0o600}, found


def test_a_lock_file_of_an_older_rq_is_closed_to_others(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o640)
    held = locks.lock(path)
    assert held is not None
    os.close(held)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_slot_is_locked_once_and_closed_to_others(tmp_path):
    path = tmp_path / "0"
    path.touch()
    path.chmod(0o640)
    assert not locks.is_slot_taken(path)
    held = locks.lock_slot(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert locks.is_slot_taken(path)
    assert locks.lock_slot(path) is None
    os.close(held)
    assert not locks.is_slot_taken(path)
    assert not locks.is_slot_taken(tmp_path / "1")


def test_a_slot_that_is_removed_while_it_is_taken_is_made_again(tmp_path, monkeypatch):
    path, flock = tmp_path / "0", fcntl.flock

    def removed(fd, how):
        monkeypatch.undo()
        path.unlink()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    held = locks.lock_slot(path)
    assert os.path.samestat(os.fstat(held), path.stat())
    assert locks.lock_slot(path) is None
    os.close(held)


@only_root
def test_a_slot_of_another_user_is_taken_back(tmp_path):
    path = tmp_path / "0"
    path.touch()
    os.chown(path, 4321, 4321)
    os.close(locks.lock_slot(path))
    assert (path.stat().st_uid, path.stat().st_gid) == (0, os.getegid())


@pytest.mark.parametrize("after", ["another", "nothing"])
def test_who_waited_for_a_lock_file_has_the_one_that_is_there(tmp_path, after):
    path = tmp_path / "lock"
    first = locks.lock(path)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(locks.lock_waiting, path)
        wait_until(lambda: f":{path.stat().st_ino} " in waiters())
        path.rename(tmp_path / "away")
        if after == "another":
            path.touch()
        os.close(first)
        held = waiting.result(20)
    try:
        assert os.path.samestat(os.fstat(held), path.stat())
        assert locks.lock(path) is None
    finally:
        os.close(held)


def waiters() -> str:
    """Return the lines of those that wait for a lock."""
    lines = Path("/proc/locks").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if "->" in line)


HOLD = """
import fcntl, sys
with open(sys.argv[1]) as log:
    fcntl.flock(log, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""
WRITE = """
import sys
from pathlib import Path
from rq import logs
logs.append(Path(sys.argv[1]), "last")
"""


@only_root
def test_who_may_read_a_full_log_cannot_hold_up_who_writes_it(tmp_path):
    open_to_others(tmp_path)
    path = tmp_path / "audit.log"
    path.touch()
    path.chmod(0o644)
    os.truncate(path, logs.ROTATE_BYTES)
    with subprocess.Popen(
        ["python3", "-c", HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **as_user(4321) | {"env": {"PATH": "/usr/bin:/bin"}},
    ) as reader:
        assert reader.stdout.readline() == b"held\n"
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        writer = subprocess.Popen([sys.executable, "-c", WRITE, path], env=env)
        try:
            assert writer.wait(20) == 0
        finally:
            reader.stdin.close()
            reader.wait(20)
            writer.wait(20)
    assert path.read_text() == "last\n"
