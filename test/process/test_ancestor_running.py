"""A root whose Ruby RQ is not quite gone: what of it still runs is waited for, or refused."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading

import pytest
from harness import ancestor as ruby_root
from harness.queues import RunningQueue, kept
from harness.supervisor import daemon_on

from rq.layout import Root
from rq.rpc import wire
from rq.spool import restored
from rq.supervisor import ancestor, definitions

pytestmark = pytest.mark.process
MSG_ID = "20250301.1004.00.005.415"


# ---- its scripts


@pytest.fixture(params=["cwd", "environment"])
def script(request, tmp_path):
    """A script of the ancestor that runs on, and the queue of its message."""
    queue = RunningQueue(tmp_path, "t", "#!/bin/sh\necho done alone >&3\n")
    folder = queue.dir.path / "run" / MSG_ID
    ruby_root.message_at(folder, "t", "que")
    (folder / "job").mkdir()
    known = {"RQ_MSG_ID": MSG_ID} if request.param == "environment" else {}
    place = folder / "job" if request.param == "cwd" else tmp_path
    process = subprocess.Popen(["sleep", "300"], cwd=place, env=known)
    (folder / "pid").write_text(str(process.pid))
    try:
        yield process, queue
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_message_waits_for_the_script_of_the_ancestor_that_has_it(script):
    process, queue = script
    with kept(queue):
        assert queue.run()["state"] == "done"
        story = queue.get(MSG_ID)["story"]
        assert queue.state(MSG_ID) == "run"
        assert f"Process {process.pid}, which the Ruby RQ started" in story["why"]
        assert queue.stop() == 0
        queue.start()
        assert queue.state(MSG_ID) == "run"
        process.kill()
        process.wait()
        assert queue.ended(MSG_ID)["status"] == "done - alone"


def test_a_number_that_another_process_has_by_now_is_not_waited_for(tmp_path):
    queue = RunningQueue(tmp_path, "t", "#!/bin/sh\necho done alone >&3\n")
    folder = queue.dir.path / "run" / MSG_ID
    ruby_root.message_at(folder, "t", "que")
    (folder / "job").mkdir()
    (folder / "pid").write_text(str(os.getpid()))
    with kept(queue):
        assert queue.ended(MSG_ID)["status"] == "done - alone"


@pytest.mark.parametrize("number", ["99999999999", "2147483648", "4194304", "-1", "x"])
def test_a_number_that_no_process_can_have_does_not_keep_a_queue_from_its_start(
    tmp_path, number
):
    queue = RunningQueue(tmp_path, "t", "#!/bin/sh\necho done alone >&3\n")
    folder = queue.dir.path / "run" / MSG_ID
    ruby_root.message_at(folder, "t", "que")
    (folder / "pid").write_text(number)
    with kept(queue):
        assert queue.ended(MSG_ID)["status"] == "done - alone"


# ---- its processes


class Forerunner:
    """Answers as a process of the ancestor does: a request on each connection."""

    def __init__(self, path, answers):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            line, _ = self._socket.accept()
            with line:
                word = line.recv(4096)[13:].split(b" ")[0].decode()
                if not word:
                    return
                reply = self._answers.get(word, ["error"])
                with contextlib.suppress(OSError):  # whoever asked may have gone
                    line.sendall(wire.frame(json.dumps(reply).encode()))

    def close(self):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self._socket.getsockname())
        self._thread.join()
        self._socket.close()


@pytest.fixture
def daemon(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        yield daemon


def started(daemon):
    """Try to start the supervisor; return its status and what it said."""
    done = subprocess.run(
        **daemon.command("rq.supervisor"),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stderr


def test_a_root_whose_ancestor_runs_is_refused(daemon):
    daemon.root.supervisor_pid.write_text("4194999\n")
    manager = Forerunner(daemon.root.supervisor_socket, {"ping": ["pong"]})
    try:
        status, said = started(daemon)
        up = subprocess.run(
            **daemon.command("rq.cli", "up"),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        manager.close()
    assert (status, said.count("\n")) == (1, 1)
    assert "the Ruby RQ runs in" in said
    assert "(pid 4194999)" in said
    assert up.returncode != 0
    assert "the Ruby RQ runs in" in up.stderr
    assert daemon.root.supervisor_pid.read_text() == "4194999\n"


def test_a_queue_of_the_ancestor_without_its_manager_is_refused(daemon):
    queue = daemon.root.queue("orphan")
    queue.path.mkdir(parents=True)
    queue.config.write_text("{}")
    process = Forerunner(queue.socket, {"ping": ["pong"]})
    try:
        status, said = started(daemon)
    finally:
        process.close()
    assert status == 1
    assert "still owns queue orphan" in said


def test_sockets_that_the_ancestor_left_are_no_ancestor(daemon):
    for path in (daemon.root.supervisor_socket, daemon.root.queue("q").socket):
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    (daemon.root.queue("q").path / "config.json").write_text("{}")
    daemon.start()
    assert daemon.ask("ping") == ["pong"]


@pytest.mark.slow
def test_queues_of_ours_that_still_run_are_no_ancestor(daemon):
    daemon.start()
    daemon.create("q")
    daemon.crash()
    ancestor.refuse(daemon.root)
    daemon.start()
    daemon.until_up("q")


# ---- its scripts in the place of ours, its names


@pytest.mark.parametrize("shipped", ["default_scripts/cleaner", "own/cleaner"])
def test_scripts_of_the_ancestor_in_the_place_of_ours_are_named(tmp_path, shipped):
    root = Root(tmp_path)
    place = tmp_path / shipped
    place.mkdir(parents=True)
    shebang = "#!/bin/sh\n" if "default" in shipped else "#!/usr/bin/env ruby\n"
    (place / "run").write_text(shebang)
    for name, script in (("cleaner", f"./{shipped}/run"), ("relay", "/bin/true")):
        root.queue(name).path.mkdir(parents=True)
        root.queue(name).config.write_text(json.dumps({"script": script}))
    told = restored.why_not_taken_over(root.queue("cleaner"))
    own = restored.BUNDLED / "cleaner"
    assert f"`ln -sfn {own} {tmp_path}/scandir/cleaner`" in told
    assert restored.why_not_taken_over(root.queue("relay")) is None
    assert ancestor.scripts(root) == {}  # a queue that waits says it itself


def test_a_queue_with_another_name_waits_for_the_script_that_it_runs(tmp_path):
    queue = Root(tmp_path).queue("housekeeping")
    queue.path.mkdir(parents=True)
    for script, waits in (("cleaner", True), ("debug", False), ("my/cleaner", False)):
        path = f"./default_scripts/{script}/run"
        queue.config.write_text(json.dumps({"script": path}))
        if script == "my/cleaner":
            queue.config.write_text(json.dumps({"script": "./my/cleaner/run"}))
        assert (restored.why_not_taken_over(queue) is not None) is waits


def test_names_that_no_queue_may_have_are_told_and_what_was_deleted_is_not(tmp_path):
    for name in ("two words", "café", "gone.deleted.1234", "fine"):
        (tmp_path / "queue" / name).mkdir(parents=True)
        (tmp_path / "queue" / name / "config.json").write_text("{}")
    (tmp_path / "queue/lost+found").mkdir()
    assert definitions.unusable(Root(tmp_path)).keys() == {"two words", "café"}
