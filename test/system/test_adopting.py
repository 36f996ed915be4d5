"""`rq up` on a root that the ancestor filled says what will go and when, and asks."""

import contextlib
import os
import re
import subprocess
import sys

import pytest
from harness import ancestor
from harness.checkout import CHECKOUT
from harness.cli import rq, running
from harness.ports import free_port

pytestmark = pytest.mark.system
LINE = r"work: 2 done after \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n"


@pytest.fixture
def root(tmp_path):
    return ancestor.build(tmp_path / "root", free_port())


def up_at_a_terminal(root, answer):
    """Run `rq up` where a person answers; return its exit code and what it asked."""
    ours, theirs = os.openpty()
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "rq.cli", "--root", str(root), "up"]
    try:
        process = subprocess.Popen(command, stdin=theirs, stderr=theirs, env=env)
        os.write(ours, answer)
        code = process.wait(60)
    finally:
        os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as file, contextlib.suppress(OSError):
        while data := file.read(65536):  # EIO when nobody has it open any more
            shown += data
    return code, shown.decode().replace("\r\n", "\n")


def test_a_person_who_says_no_has_started_and_changed_nothing(root):
    before = ancestor.everything(root)
    code, asked = up_at_a_terminal(root, b"n\n")
    assert code == 1
    assert re.search(LINE, asked)
    assert asked.endswith("Start RQ? [y/N] ")
    assert ancestor.everything(root) == before


@pytest.mark.slow
def test_where_nobody_can_be_asked_it_is_said_and_nothing_goes(root):
    up = rq("up", "--no-samples", root=root)
    try:
        assert up.returncode == 0, up.stderr
        assert re.search(LINE, up.stderr)
        for state in ("1 relayed", "1 acknowledged", "1 prepared"):
            assert f"work: {state} after " in up.stderr
        done = rq("ls", "work", "--state", "done", "--json", root=root)
        assert ancestor.DONE in done.stdout
    finally:
        rq("down", root=root)
    with running(root):
        again = rq("up", root=root)
    assert "another RQ" not in again.stderr


@pytest.mark.slow
def test_a_root_of_our_own_is_not_asked_about(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with running(root):
        up = rq("up", root=root)
    assert "another RQ" not in up.stderr
