"""A queue without free descriptors is busy: it never blames the disk, and loses nothing."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness.checkout import CHECKOUT
from harness.queues import RunningQueue, running_queue, short
from harness.waiting import wait_until

from rq.errors import RQError
from rq.kinds import Kind
from rq.rpc import client
from rq.supervisor.children import DO_NOT_RESTART

pytestmark = pytest.mark.process
BLAMES = ("the disk", "no space", "Traceback", "the command failed")


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path / "root", "#!/bin/sh\necho done >&3\n") as queue:
        yield queue


@contextlib.contextmanager
def starved(queue: RunningQueue, spare: int) -> Iterator[None]:
    """Let its process open no more than `spare` descriptors while the block runs."""
    limit = resource.RLIMIT_NOFILE
    before = resource.prlimit(queue.pid, limit)
    # A thread may have something open for a moment: that is no place that is taken.
    looks = (os.listdir(f"/proc/{queue.pid}/fd") for _ in range(200))
    most = min(max(map(int, fds)) for fds in looks) + 1 + spare
    resource.prlimit(queue.pid, limit, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(queue.pid, limit, before)


def requests(queue: RunningQueue, old: str, prepared: str) -> list[tuple[str, object]]:
    one, path = {"msg_id": old}, "/etc/hostname"
    return [
        ("ping", b""), ("detail", b""), ("num_messages", b""), ("get_message", one),
        ("get_message_status", one), ("list", {"state": "done"}),
        ("messages", {"state": "done", "filter": "x"}), ("check", b""), ("seal", b""),
        ("create_message", {"dest": "t"}), ("clone_message", one), ("expire", {}),
        ("attach_message", {"msg_id": prepared, "pathname": path, "name": "a"}),
        ("commit_message", {"msg_id": prepared}), ("delete_message", one), ("wake", b""),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("spare", [0, 1, 2])
def test_a_queue_without_descriptors_blames_neither_disk_nor_message(queue, spare):
    old = queue.run()["msg_id"]
    prepared = short(queue.ok("prep_message", {"dest": "t"}))
    asked = {"msg_id": prepared, "pathname": "/etc/hostname", "name": "first"}
    queue.ok("attach_message", asked)
    queue.restart()  # it has all on disk only
    with client.Connection(queue.dir.socket, 20) as line:
        line.ask("ping")
        with starved(queue, spare):
            for command, arg in requests(queue, old, prepared):
                reply = str(line.ask(command, arg))
                assert not any(text in reply for text in BLAMES), (command, reply)
                assert "is missing" not in reply
    assert not any(text in queue.log() for text in BLAMES), queue.log()
    wait_until(lambda: queue.ask("num_messages")["que"] == 0)
    assert queue.ask("num_messages")["err"] == 0
    assert queue.run()["state"] == "done"
    wait_until(lambda: not os.listdir(queue.dir.path / "gone"))


def test_an_attachment_that_needs_a_descriptor_too_many_may_be_sent_again(queue):
    prepared = short(queue.ok("prep_message", {"dest": "t"}))
    asked = {"msg_id": prepared, "pathname": "/etc/hostname", "name": "a"}
    with client.Connection(queue.dir.socket, 20) as line:
        line.ask("ping")
        with starved(queue, 0):
            word, text, kind = line.ask("attach_message", asked)
            assert (word, "RQ lacks descriptors" in text) == ("fail", True), text
            assert kind == Kind.BUSY
            with open("/etc/hostname") as file, contextlib.suppress(RQError):
                _, text, *_ = line.ask("attach_message", asked, [file.fileno()])
                # A thread that has just closed its own leaves room for this one.
                assert re.search("RQ (has no|lacks) descriptors", text), text
        assert queue.ok("attach_message", asked).endswith("successfully")
    assert queue.ok("commit_message", {"msg_id": prepared}) == "msg commited"


@pytest.mark.slow
def test_waiting_messages_are_not_lost_by_a_start_without_descriptors(tmp_path):
    with running_queue(tmp_path / "root") as queue:
        ids = [queue.send(due=4e9) for _ in range(50)]
        wait_until(lambda: len(os.listdir(queue.dir.path / "que")) == 50)
        assert queue.stop() == 0
        (queue.dir.path / "journal" / "index").unlink(missing_ok=True)
        for most in range(14, 40):
            limit = {"preexec_fn": lambda most=most: _limit(most)}
            with contextlib.suppress(AssertionError):
                queue.start(**limit)
            if queue.alive:
                queue.stop()
        assert queue.process.wait(60) is not None
        queue.start()
        assert {queue.state(one) for one in ids} == {"que"}
        for one in ids:
            queue.ok("delete_message", {"msg_id": one})


def _limit(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def test_a_checkpoint_without_a_descriptor_waits(tmp_path):
    code = (
        "import json, os, resource, sys\n"
        "from pathlib import Path\n"
        "from rq.layout import QueueDir\n"
        "from rq.spool import checkpoint\n"
        "queue = QueueDir(Path(sys.argv[1]))\n"
        "fd = os.open(queue.path, os.O_RDONLY)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, fd + 1))\n"
        "try:\n"
        "    checkpoint.finish(fd, queue, None)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    place = tmp_path / "queue" / "t"
    place.mkdir(parents=True)
    ran = subprocess.run(
        [sys.executable, "-c", code, str(place)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.startswith("Refused no room for a checkpoint"), ran


@pytest.mark.slow
def test_a_config_that_cannot_be_read_now_is_read_later(queue):
    limit = resource.RLIMIT_NOFILE
    before = resource.prlimit(queue.pid, limit)
    resource.prlimit(queue.pid, limit, (3, before[1]))
    try:
        queue.configure(num_workers=7)
        os.kill(queue.pid, signal.SIGHUP)
        wait_until(lambda: "goes on with its old config" in queue.log())
    finally:
        resource.prlimit(queue.pid, limit, before)
    wait_until(lambda: queue.ok("config")["num_workers"] == 7)
    assert queue.log().count("goes on with its old config") == 1


# ---- a start that cannot read its config

_LACKS = """
import sys
from pathlib import Path
from rq import config
from rq.errors import CannotRead
def lacks(root):
    raise CannotRead("config.json cannot be read: Too many open files")
config.read_root = lacks
"""
_STARTS = {
    "queue": """
from rq.queues import process
sys.exit(process.main(Path(sys.argv[1]), "q", ready_fd=None, life_fd=None))
""",
    "web": """
from rq.web import server
sys.exit(server.main(["--root", sys.argv[1]]))
""",
}


@pytest.mark.parametrize("kind", ["queue", "web"])
def test_who_cannot_read_its_config_now_is_started_again(tmp_path, kind):
    (tmp_path / "log").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", _LACKS + _STARTS[kind], str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    said = ran.stderr + "".join(one.read_text() for one in (tmp_path / "log").iterdir())
    assert ran.returncode == 1 != DO_NOT_RESTART
    assert "cannot be read: Too many open files" in said
    assert "Traceback" not in said
