"""What a notice shows is of the queue whose settings name the reader, whatever is swapped in
the path meanwhile."""

import contextlib
import json
import subprocess
import sys
import time

import pytest

from rq.builtin.notice import __main__ as program
from rq.layout import JOB, STDIO_LOG, QueueDir, Root, folder
from rq.scripts.pipe import Verb
from rq.words.states import State

pytestmark = pytest.mark.process

ID = "20260102.0304.05.006.7"
EVE, OPS = "mail:eve@example.org", "mail:ops@example.org"
TRIES = 1500
# Swaps a directory for a link, and back, for as long as it is let.
FLIP = """
import os, sys
real, link, aside = sys.argv[1:]
while True:
    os.rename(real, aside)
    os.rename(link, real)
    os.rename(real, link)
    os.rename(aside, real)
"""


def made(path, log, told):
    """Make a directory as that of a queue with a failed message."""
    queue = QueueDir(path)
    job = path / folder(State.ERR, ID) / JOB
    job.mkdir(parents=True)
    (job / STDIO_LOG).write_text(log)
    settings = {"name": path.name, "script": "/x", "on_err": told.removeprefix("mail:")}
    queue.config.write_text(json.dumps(settings))
    return queue


@contextlib.contextmanager
def flipping(real, link):
    words = [sys.executable, "-c", FLIP, real, link, real.with_name(".aside")]
    process = subprocess.Popen([str(word) for word in words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = Root(tmp_path / "root")
    root.config_dir.mkdir(parents=True)
    root.config.write_text(json.dumps({"host": "127.0.0.1", "port": 3333}))
    made(root.path / "queue/t", "of t", OPS)
    made(root.path / "queue/other", "of other", OPS)
    made(tmp_path / "outside", "from outside", EVE)
    monkeypatch.setenv("RQ_ROOT", str(root.path))
    return root


def told(monkeypatch, whom, queue):
    """Let a notice of a queue be brought again and again; return the logs that were shown,
    and what else was said."""
    logs, said = set(), set()

    def mail(main, to, story, log):
        logs.add(log)
        return Verb.DONE, ""

    monkeypatch.setattr(program, "_mail", mail)
    story = json.dumps({"at": 1, "msg_id": ID})
    for number, text in enumerate((whom, queue, "err", story), 1):
        monkeypatch.setenv(f"RQ_PARAM{number}", text)
    until = time.monotonic() + 60
    for _ in range(TRIES):
        said.add(program._try())
        if time.monotonic() > until:
            break
    return logs, said


@pytest.mark.slow
@pytest.mark.parametrize("to", ["outside", "root/queue/other"])
@pytest.mark.parametrize("whom", [EVE, OPS])
def test_no_log_is_shown_but_that_of_the_queue_whose_settings_say_so(
    root, tmp_path, monkeypatch, whom, to
):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / to)
    with flipping(root.path / "queue/t", link):
        logs, said = told(monkeypatch, whom, "t")
    assert logs <= ({"of t", ""} if whom == OPS else set()), (logs, said)


@pytest.mark.parametrize(
    "queue", ["../../evil/flip", "{evil}/flip", "queue/t", "t/../t"]
)
def test_a_path_is_no_name_of_a_queue(root, tmp_path, monkeypatch, queue):
    evil = tmp_path / "evil"
    evil.mkdir()
    made(evil / "flip", "of eve", EVE)
    link = evil / "link"
    link.symlink_to(root.path / "queue/t")
    monkeypatch.setattr(sys.modules[__name__], "TRIES", 50)
    with flipping(evil / "flip", link):
        logs, said = told(monkeypatch, EVE, queue.format(evil=evil))
    assert logs == set()
    assert all("invalid characters" in text for _, text in said), said
