"""Verbs for a bad night go on past what is broken, and say so."""

import dataclasses
import errno
import importlib.util
import json
import os
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT

from rq import cli
from rq.cli import output, owner, place, spark
from rq.errors import BadConfig
from rq.files import disk
from rq.layout import Root
from rq.spool import disk_speed
from rq.words.states import State


def test_check_goes_on_past_a_queue_that_refuses(tmp_path, monkeypatch, capsys):
    replies = {"a": ["fail", "the queue is stopping"], "b": ["ok", {"problems": []}]}
    monkeypatch.setattr(place, "queue_names", lambda _: list(replies))
    monkeypatch.setattr(owner.Reader, "answer", lambda _, name, *__: replies[name])
    words = ["--root", str(tmp_path), "check", "--json"]
    assert cli.main(words) == cli.INTEGRITY
    [row] = json.loads(capsys.readouterr().out)
    assert (row["queue"], row["kind"]) == ("a", "unchecked")
    assert row["text"] == "the queue is stopping"


def test_check_goes_on_past_what_is_no_queue_and_makes_nothing_there(tmp_path, capsys):
    root, away = Root(tmp_path / "root"), tmp_path / "away"
    for directory in (root.queue("a").path, root.queue("b").path, away, away / "que"):
        directory.mkdir(parents=True)
    root.queue("a").path.rmdir()
    root.queue("a").path.symlink_to(away)
    root.queue("c").path.symlink_to(tmp_path / "nowhere")
    for has_config in (False, True):
        if has_config:
            (away / "config.json").write_text("{}")
            (root.queue("b").path / "done").write_text("")
            root.queue("b").config.write_text("{}")
        words = ["--root", str(root.path), "check", "--fix", "--json"]
        assert cli.main(words) == cli.INTEGRITY
        rows = json.loads(capsys.readouterr().out)
        assert [row["queue"] for row in rows] == ["a", "b", "c"]
        assert {row["kind"] for row in rows} == {"unreadable"}
        assert set(os.listdir(away)) <= {"que", "config.json"}


def test_doctor_tells_of_a_disk_that_it_cannot_measure(tmp_path, monkeypatch, capsys):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    system = dataclasses.replace(disk.describe(tmp_path), free_bytes=1 << 40)
    monkeypatch.setattr(disk, "describe", lambda _: system)
    monkeypatch.setattr(disk_speed, "measure", full)
    assert cli.main(["--root", str(tmp_path), "doctor"]) == cli.OK
    said = capsys.readouterr().out
    assert "promise" in said
    assert "could not be measured: No space left" in said


def test_doctor_does_not_fill_a_disk_that_is_nearly_full(tmp_path, monkeypatch, capsys):
    system = dataclasses.replace(disk.describe(tmp_path), free_bytes=1 << 20)
    monkeypatch.setattr(disk, "describe", lambda _: system)
    monkeypatch.setattr(disk_speed, "measure", None)
    assert cli.main(["--root", str(tmp_path), "doctor"]) == cli.OK
    assert "was not measured: that takes 256.0 MiB" in capsys.readouterr().out


class Restarting:
    """A reader that finds no owner at its first looks, as while a queue restarts."""

    root = None
    looks = 0

    def online(self, _):
        self.looks += 1
        return self.looks > 3

    def forget(self, _):
        pass

    def where(self, *_):
        return State.DONE if self.looks > 3 else State.RUN


def test_a_log_is_followed_while_its_queue_restarts(monkeypatch, capsys):
    reader = Restarting()
    monkeypatch.setattr(output, "_where", reader.where)
    for name, value in {"_log_in": None, "_identity": (1, 1), "_print_from": 0}.items():
        monkeypatch.setattr(output, name, lambda *_, value=value: value)
    monkeypatch.setattr(output, "_is_there", lambda *_: True)
    monkeypatch.setattr(output, "_PAUSE", 0)
    monkeypatch.setattr(place, "is_running", lambda _: True)
    output._follow(reader, ("q", "20260102.0304.05.006.7"), 0, lambda _: None)
    assert reader.looks == 4
    assert capsys.readouterr().err == ""


def test_a_link_that_is_not_used_is_told_where_its_queue_is_asked_for(tmp_path, capsys):
    (tmp_path / "scandir").mkdir()
    (tmp_path / "scandir/mail").symlink_to("../nowhere")
    assert cli.main(["--root", str(tmp_path), "ls", "mail"]) == cli.NOT_FOUND
    assert "`rq status` says why scandir/mail is not used" in capsys.readouterr().err


INTERRUPTED = """
import os, runpy, signal, sys
at = sys.argv[1]
class Finder:
    def find_spec(self, name, *_):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[:] = ["-m", "version"]
runpy.run_module("rq.cli", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("typing", -2),
        ("rq.errors", -2),
        ("rq.cli.terminal", -2),
        ("orjson", -2),
        ("rq.cli.version", -2),
        ("rq.access.owner", 130),
    ],
)
def test_ctrl_c_while_it_begins_ends_it_without_a_word(module, code):
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module],
        env=environ,
        capture_output=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert done.returncode == code


def test_a_directory_that_is_gone_is_said(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.guarded(lambda: len(os.getcwd())) == cli.FAILED
    said = capsys.readouterr().err
    assert (
        said
        == "rq: the directory that you are in was removed: change into another one\n"
    )


def test_a_full_disk_is_said_in_a_sentence(capsys):
    def write():
        with open("/dev/full", "w") as file:
            file.write("x")

    assert cli.guarded(write) == cli.FAILED
    assert capsys.readouterr().err == (
        "rq: No space left on device: it was not done; free some space and try again\n"
    )


def test_the_history_without_spark_says_how_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadConfig, match="not installed: run `rq up --spark`"):
        spark.run(Root(tmp_path))
