"""`rq up` on a root that the ancestor filled says what will go and when, and asks."""

import contextlib
import json
import os
import re
import subprocess
import sys

import pytest
from harness import ancestor
from harness.checkout import CHECKOUT
from harness.cli import rq, running
from harness.ports import free_port
from harness.waiting import wait_until

from rq.layout import Root
from rq.rpc import client
from rq.spool import adoption, restored

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


def test_without_a_terminal_nothing_is_started_and_it_says_how(root):
    before = ancestor.everything(root)
    up = rq("up", "--no-samples", root=root)
    assert up.returncode == 1
    assert re.search(LINE, up.stderr)
    for state in ("1 relayed", "1 acknowledged", "1 prepared"):
        assert f"work: {state} after " in up.stderr
    assert "`rq up --adopt` takes it over" in up.stderr
    assert ancestor.everything(root) == before


@pytest.fixture(scope="module")
def adopted(tmp_path_factory):
    """Give a root that was taken over with the ancestor's cleaner, and its timer."""
    path = ancestor.build(tmp_path_factory.mktemp("old") / "root", free_port())
    ancestor.add_cleaner(path)
    try:
        up = rq("up", "--no-samples", "--adopt", root=path)
        # RQ runs; who starts it learns that not all queues take messages.
        assert up.returncode == 1
        assert "warning: cleaner takes no messages: " in up.stderr
        assert "queue cleaner, with its script of the Ruby RQ" in up.stderr
        assert "timer cleaner, timer dangling, timer hourly" in up.stderr
        yield Root(path)
    finally:
        rq("down", root=path)


def waiting(root):
    return {
        row.get("queue") or f"timer {row['timer']}"
        for row in json.loads(rq("restore", "--json", root=root.path).stdout)
    }


ALL = {"cleaner", "timer cleaner", "timer hourly"}


@pytest.mark.slow
def test_nothing_of_it_acts_before_the_operator_over_restarts_too(adopted):
    for _ in range(2):
        client.ask_timers(adopted.timers_socket, "wake")
        rows = json.loads(rq("timer", "ls", "--json", root=adopted.path).stdout)
        assert {row["name"] for row in rows if row.get("paused")} == {
            "cleaner",
            "hourly",
        }
        assert waiting(adopted) == ALL
        status = rq("status", root=adopted.path).stdout
        assert "cleaner accepts no messages: it runs " in status
        assert "timers/hourly waits for you: the Ruby RQ left it" in status
        done = rq("ls", "work", "--state", "done", root=adopted.path).stdout
        assert ancestor.DONE in done
        assert not (adopted.path / ancestor.CLEANED).exists()
        assert adoption.is_foreign(adopted.queue("cleaner"))
        rq("down", root=adopted.path)
        again = rq("up", root=adopted.path)
        assert "another RQ" not in again.stderr


@pytest.mark.slow
def test_one_timer_is_let_go_on_and_the_others_wait(adopted):
    assert rq("timer", "resume", "hourly", root=adopted.path).returncode == 0
    work = ("ls", "work", "--state", "done", "--json")
    wait_until(lambda: "from the timer" in rq(*work, root=adopted.path).stdout)
    assert waiting(adopted) == ALL - {"timer hourly"}


@pytest.mark.slow
def test_own_script_in_its_place_opens_the_queue_and_accept_lets_the_timer_fire(
    adopted,
):
    link = adopted.scandir / "cleaner"
    link.unlink()
    link.symlink_to(restored.BUNDLED / "cleaner")
    wait_until(lambda: "cleaner" not in waiting(adopted), 60)
    accepted = rq("restore", "accept", root=adopted.path)
    assert accepted.returncode == 0
    assert "timer dangling goes on once RQ can read its file" in accepted.stdout
    assert waiting(adopted) == set()
    assert json.loads(adopted.adopted.read_text())["timers"] == []
    assert rq("up", root=adopted.path).returncode == 0
    ran = ("ls", "cleaner", "--state", "done", "--json")
    wait_until(lambda: json.loads(rq(*ran, root=adopted.path).stdout), 60)
    assert not (adopted.path / ancestor.CLEANED).exists()


@pytest.mark.slow
def test_a_person_may_accept_its_script_as_it_is(root):
    ancestor.add_cleaner(root)
    try:
        rq("up", "--no-samples", "--adopt", root=root)
        assert rq("restore", "accept", "cleaner", root=root).returncode == 0
        wait_until(lambda: not adoption.is_foreign(Root(root).queue("cleaner")), 60)
        assert rq("restore", "accept", root=root).returncode == 0
        wait_until((root / ancestor.CLEANED).exists, 60)
        status = rq("status", root=root).stdout
        assert "cleaner has the wrong script: it runs" in status
    finally:
        rq("down", root=root)


@pytest.mark.slow
def test_a_root_of_our_own_is_not_asked_about(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with running(root):
        up = rq("up", root=root)
    assert "another RQ" not in up.stderr
