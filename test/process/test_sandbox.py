"""`rq sandbox`: an RQ for the time of a command, of which nothing is left, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import documents, guide
from harness.checkout import CHECKOUT
from harness.waiting import wait_until

SEND = """
import json, os, sys, urllib.request
def api(path, data=None):
    request = urllib.request.Request(
        os.environ["RQ_URL"] + "/api/v1/queues/" + path,
        data=None if data is None else json.dumps(data).encode(),
        headers={"Authorization": "Bearer " + os.environ["RQ_TOKEN"],
                 "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)
queue, param = sys.argv[1:3]
msg_id = api(queue + "/messages", {"param1": param, "max_count": 1})["msg_id"]
if sys.argv[3:]:
    print(api(f"{queue}/messages/{msg_id}?wait=60&for=end")["state"])
sys.exit(3)
"""
HANG = "sleep 600 & echo $! > left; echo $$ $RQ_ROOT > begun; wait"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory of the command, and the one in which sandboxes are made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "send.py").write_text(SEND)
    return tmp_path


def begin(*words):
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": os.path.abspath("tmp")}
    command = [sys.executable, "-m", "rq.cli", "sandbox", *map(str, words)]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def sandbox(*words):
    """Return exit status, output and errors of a sandbox that has ended."""
    process = begin(*words)
    out, err = process.communicate(timeout=180)
    assert not os.listdir("tmp"), "it left its directory"
    return process.returncode, out, err


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def alive(root):
    """Name the processes that have a root in their words or in their environment."""
    mark, found = str(root).encode(), []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            seen = [(directory / name).read_bytes() for name in ("cmdline", "environ")]
            state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if any(mark in text for text in seen) and state != "Z":
            found.append(directory.name)
    return found


@contextlib.contextmanager
def hanging(*words):
    """Give a sandbox whose command waits and has a child, and its root."""
    with begin(*words, "--", "sh", "-c", HANG) as process:
        wait_until(lambda: Path("begun").exists() and Path("begun").read_text(), 60)
        yield process, Path("begun").read_text().split()[1]


def test_a_command_has_an_rq_and_its_status_is_the_sandboxs(place):
    program(place / "mail.sh", "echo done $RQ_PARAM1 >&3")
    words = ("--", sys.executable, "send.py", "mail", "hello", "wait")
    assert sandbox("--queue", "mail=mail.sh", *words) == (3, "done\n", "")


@pytest.mark.slow
def test_its_token_may_be_for_some_queues(place):
    program(place / "mail.sh", "echo done >&3")
    words = ("--role", "sender", "--queue", "mail=mail.sh", "--token-queue", "ma*")
    sent = sandbox(*words, "--", sys.executable, "send.py", "mail", "x", "wait")
    assert sent == (3, "done\n", "")
    other = sandbox(*words, "--", sys.executable, "send.py", "debug", "x", "wait")
    assert other[0] != 3
    assert "not_allowed" in other[2] or "403" in other[2], other


def test_what_failed_is_printed_with_its_log(place):
    program(place / "mail.sh", "echo no such address; echo err refused >&3")
    words = ("--", sys.executable, "send.py", "mail", "hello", "wait")
    code, out, err = sandbox("--queue", "mail=mail.sh", *words)
    assert (code, out) == (3, "err\n")
    assert err.startswith("rq: mail/")
    assert "err: The script reported err: refused.\n" in err
    assert "\n    no such address\n" in err


@pytest.mark.slow
def test_definitions_come_from_a_scandir(place):
    program(place / "queues/copy/run", "echo $MINE > $OUT; echo done >&3")
    settings = {"env_vars": {"MINE": "its own"}}
    (place / "queues/copy/config.json").write_text(json.dumps(settings))
    (place / "linked").mkdir()
    (place / "linked/other").symlink_to("../queues/copy")
    words = ("--", "env", f"OUT={place}/x", sys.executable, "send.py")
    os.environ["OUT"] = str(place / "written")
    try:
        ended = sandbox("--scandir", "queues", *words, "copy", "x", "wait")
        linked = sandbox("--scandir", "linked", *words, "other", "x", "wait")
    finally:
        del os.environ["OUT"]
    assert ended[:2] == linked[:2] == (3, "done\n")
    assert (place / "written").read_text() == "its own\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--"], 2, "say the command after --"),
        (["--queue", "a=gone", "--", "true"], 2, "gone cannot be started: there is no"),
        (["--queue", "gone", "--", "true"], 2, "no queue of this name comes with RQ"),
        (["--scandir", "gone", "--", "true"], 2, "--scandir gone: No such file"),
        (["--", "./gone"], 127, "./gone cannot be started: No such file"),
    ],
)
def test_what_is_wrong_is_one_sentence(place, words, code, said):
    ended = sandbox(*words)
    assert said in ended[2]
    assert (ended[0], len(ended[2].splitlines())) == (code, 1)


def test_only_what_is_needed_is_started(place):
    script = "ls $RQ_ROOT/log; test ! -e $RQ_ROOT/index"
    code, out, _ = sandbox("--", "sh", "-c", script)
    logs = {"forks.log", "queuemgr.log", "start.log", "web.log"}
    assert (code, set(out.split())) == (
        0,
        logs | {f"queue-{name}.log" for name in ("debug", "flow", "webhook")},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_all_else(place, number):
    with hanging() as (process, root):
        process.send_signal(number)
        process.wait(60)
        assert process.returncode == 128 + number
        assert [*alive(root), *os.listdir("tmp")] == []


def test_after_a_kill_nothing_is_left(place):
    program(place / "slow.sh", "echo $$ > running; sleep 600")
    with hanging("--queue", "slow=slow.sh") as (process, root):
        command = [sys.executable, "-m", "rq.cli", "--root", root, "send", "slow"]
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        queues = Path(root, "queue/slow/run")
        wait_until(lambda: any(queues.glob("*/job/running")), 60)
        process.kill()
        process.wait(60)
        wait_until(lambda: not os.listdir("tmp") and not alive(root), 60)


@pytest.mark.slow
def test_without_its_keeper_it_ends_too(place):
    with hanging() as (process, root):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        wait_until(lambda: not Path(root, "config/queuemgr.sock").exists(), 60)
        process.terminate()
        process.wait(60)
        wait_until(lambda: not (alive(root) or os.listdir("tmp")), 60)


@pytest.mark.slow
def test_ten_stand_side_by_side(place):
    program(place / "mail.sh", "echo done >&3")
    words = (
        "--queue",
        "mail=mail.sh",
        "--",
        sys.executable,
        "send.py",
        "mail",
        "x",
        "w",
    )
    processes = [begin(*words) for _ in range(10)]
    ended = [process.communicate(timeout=240) for process in processes]
    assert [out for out, _ in ended] == ["done\n"] * 10, ended
    assert not os.listdir("tmp")


# ---- the recipes of the guide


@pytest.fixture
def recipes(place, monkeypatch):
    """The files of the guide, beside each other, and `rq` on the PATH."""
    page = documents.GUIDE / "testing.md"
    blocks: dict[str, list[str]] = {}
    for example in documents.examples(page):
        blocks.setdefault(example.language, []).append(example.text)
    program(place / "queues/greet/run", "").write_text(blocks["sh"][1])
    for name, text in zip(("conftest.py", "test_it.py"), blocks["python"], strict=True):
        (place / name).write_text(text)
    (place / "it.test.mjs").write_text(blocks["js"][0])
    shutil.copy(CHECKOUT / "rq/share/rq_client.py", place)
    shutil.copy(CHECKOUT / "rq/share/rq_client.js", place / "rq_client.mjs")
    monkeypatch.setenv("PATH", f"{guide.launcher(place / 'bin')}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    return place


def played(*words):
    """Return the exit status and all that a test runner prints of the guide's test."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ended = subprocess.run(words, **options, timeout=180, check=False)
    assert not os.listdir("tmp")
    return ended.returncode, ended.stdout


def test_the_fixture_of_the_guide_is_enough_for_pytest(recipes):
    code, printed = played(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"
    )
    assert code == 0, printed


@pytest.mark.slow
def test_what_failed_under_the_fixture_is_printed(recipes):
    text = (recipes / "test_it.py").read_text().replace('"Ann"', '""')
    (recipes / "test_it.py").write_text(text)
    code, printed = played(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"
    )
    assert code == 1, printed
    assert "err: The script reported err: nobody to greet" in printed


def test_the_recipe_for_node_test(recipes):
    if shutil.which("node") is None:
        pytest.skip("no node -> apt-get install nodejs")
    code, printed = played("node", "--test", "it.test.mjs")
    assert code == 0, printed
