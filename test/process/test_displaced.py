"""An owner whose directory is gone, or another by its path, promises nothing any more."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.processes import lives
from harness.queues import RunningQueue, running_queue
from harness.sockets import old_line
from harness.supervisor import Daemon, daemon_on
from harness.waiting import wait_until

from rq.client import Connection

DISPLACED = 4  # the exit status
SLOW = '#!/bin/sh\necho $$ > "$PLACE/pid"\nexec sleep 600\n'


def remove(queue: RunningQueue) -> None:
    def removed() -> bool:  # its owner may make a folder meanwhile
        shutil.rmtree(queue.dir.path, ignore_errors=True)
        return not queue.dir.path.exists()

    wait_until(removed)


def move(queue: RunningQueue) -> None:
    queue.dir.path.rename(queue.root.path / "elsewhere")


def remove_journal(queue: RunningQueue) -> None:
    shutil.rmtree(queue.dir.journal)


def lay_a_backup_over(queue: RunningQueue) -> None:
    backup = queue.root.path / "backup"
    shutil.copytree(queue.dir.path, backup, ignore=shutil.ignore_patterns("*.sock"))
    for path in backup.rglob("*"):
        if path.is_file():
            target = queue.dir.path / path.relative_to(backup)
            target.unlink()
            shutil.copy(path, target)


def put_another_there(queue: RunningQueue) -> None:
    move(queue)
    shutil.copytree(
        queue.root.path / "elsewhere",
        queue.dir.path,
        ignore=shutil.ignore_patterns("*.sock"),
    )


def mount_over(queue: RunningQueue) -> None:
    mounted("-t", "tmpfs", "none", str(queue.dir.path))


def bind_over(queue: RunningQueue) -> None:
    other = queue.root.path / "other"
    shutil.copytree(queue.dir.path, other, ignore=shutil.ignore_patterns("*.sock"))
    mounted("--bind", str(other), str(queue.dir.path))


def mounted(*words: str) -> None:
    done = subprocess.run(
        ["mount", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()} -> run as root")


WAYS: list[Callable[[RunningQueue], None]] = [
    remove,
    move,
    remove_journal,
    lay_a_backup_over,
    put_another_there,
    mount_over,
    bind_over,
]


@contextlib.contextmanager
def owner(path: Path, script: str = SLOW, **settings: Any) -> Iterator[RunningQueue]:
    """Give a queue of which nothing has to be in order at the end."""
    env = {"PLACE": str(path), **settings.pop("env", {})}
    queue = RunningQueue(path, "t", script, env_vars=env, **settings)
    queue.start()
    try:
        yield queue
    finally:
        queue.kill()
        mounts = Path("/proc/mounts").read_text().split("\n")
        for _ in [line for line in mounts if f" {queue.dir.path} " in line]:
            subprocess.run(["umount", "-l", queue.dir.path], check=True)


def refusal(queue: RunningQueue, line: Connection) -> str:
    """Send until the queue refuses; return its sentence."""
    answers: list[list[str]] = []

    def refused() -> bool:
        answers.append(line.ask("create_message", {"dest": "t"}))
        return answers[-1][0] == "fail"

    wait_until(refused)
    return answers[-1][1]


def running_script(queue: RunningQueue) -> int:
    """Send a message; return the process that works on it."""
    queue.send()
    pid = queue.root.path / "pid"
    wait_until(lambda: pid.exists() and bool(pid.read_text().strip()))
    return int(pid.read_text())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_owner_without_its_directory_accepts_nothing_and_ends(
    tmp_path: Path, way: Callable[[RunningQueue], None]
) -> None:
    with owner(tmp_path) as queue:
        script = running_script(queue)
        with old_line(queue.dir.socket) as line:
            assert line.ask("create_message", {"dest": "t"})[0] == "ok"
            way(queue)
            assert "queue/t" in refusal(queue, line)
        assert queue.process is not None
        assert queue.process.wait(60) == DISPLACED, queue.log()
        assert not lives(script)


def test_an_idle_owner_looks_at_its_directory_by_itself(tmp_path: Path) -> None:
    with owner(tmp_path) as queue:
        remove(queue)
        assert queue.process is not None
        assert queue.process.wait(60) == DISPLACED, queue.log()


def test_a_seal_is_no_change_of_the_directory(tmp_path: Path) -> None:
    with running_queue(tmp_path) as queue:
        for _ in range(5):
            queue.run()
            queue.ok("seal")
        queue.run()


# ---- what the supervisor does then


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_on(tmp_path / "root") as daemon:
        yield daemon
        mounts = Path("/proc/mounts").read_text().split("\n")
        for line in [line for line in mounts if str(tmp_path) in line]:
            subprocess.run(["umount", "-l", line.split(" ")[1]], check=True)


def looked(daemon: Daemon) -> None:
    """Wait until scandir has looked at all links once more."""
    name = f"after{len(list(daemon.root.scandir.iterdir()))}"
    daemon.link(name, daemon.define(name))
    daemon.until_up(name)


def held(daemon: Daemon) -> str:
    return str(daemon.ask("status")["displaced"].get("a", ""))


@pytest.mark.slow
@pytest.mark.parametrize("sees_it", [True, False], ids=["seen", "killed before"])
def test_a_queue_that_vanished_is_not_made_again_until_the_operator_says_so(
    daemon: Daemon, sees_it: bool
) -> None:
    daemon.link("a", daemon.define("a"))
    daemon.start()
    pid = daemon.until_up("a")["pid"]
    if not sees_it:
        os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(daemon.root.queue("a").path)
    if not sees_it:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "rq queue restart a" in held(daemon), 60)
    looked(daemon)
    assert not daemon.root.queue("a").path.exists()
    wait_until(lambda: "a" not in daemon.ask("queues"), 60)
    daemon.stop()
    daemon.start()
    looked(daemon)
    assert held(daemon)
    assert not daemon.root.queue("a").path.exists()
    made = {"name": "a", "script": str(daemon.script)}
    assert "a is held" in daemon.ask("create_queue", made)[1]
    assert daemon.ask("restart_queue", "a") == ["ok", "a"]
    daemon.until_up("a")
    assert not held(daemon)


@pytest.mark.slow
def test_a_queue_that_was_mounted_over_begins_with_what_was_there_before(
    daemon: Daemon,
) -> None:
    daemon.link("a", daemon.define("a"))
    daemon.start()
    daemon.until_up("a")
    assert daemon.ask_queue("a", "create_message", {"dest": "a", "due": 4e9})[0] == "ok"
    place = daemon.root.queue("a").path
    other = daemon.root.path / "other"
    other.mkdir()
    shutil.copy(place / "config.json", other)
    mounted("--bind", str(other), str(place))
    wait_until(lambda: "rq queue restart a" in held(daemon), 60)
    wait_until(lambda: daemon.child("a")["state"] == "FATAL", 60)
    looked(daemon)
    assert sorted(other.iterdir()) == [other / "config.json"]
    subprocess.run(["umount", place], check=True)
    assert daemon.ask("restart_queue", "a") == ["ok", "a"]
    daemon.until_up("a")
    assert daemon.messages("a") == 1


@pytest.mark.slow
def test_a_queue_that_vanished_can_be_deleted(daemon: Daemon) -> None:
    daemon.start()
    daemon.create("a")
    shutil.rmtree(daemon.root.queue("a").path)
    wait_until(lambda: held(daemon), 60)
    assert daemon.ask("delete_queue", "a")[0] == "ok"
    assert not held(daemon)
