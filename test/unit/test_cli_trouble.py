"""Verbs for a bad night go on past what is broken, and say so."""

import dataclasses
import errno
import json
import os

from rq import cli, disk
from rq.cli import output, owner, place
from rq.spool import disk_speed
from rq.states import State


def test_check_goes_on_past_a_queue_that_refuses(tmp_path, monkeypatch, capsys):
    replies = {"a": ["fail", "the queue is stopping"], "b": ["ok", {"problems": []}]}
    monkeypatch.setattr(place, "queue_names", lambda _: list(replies))
    monkeypatch.setattr(owner.Reader, "answer", lambda _, name, *__: replies[name])
    words = ["--root", str(tmp_path), "check", "--json"]
    assert cli.main(words) == cli.INTEGRITY
    [row] = json.loads(capsys.readouterr().out)
    assert (row["queue"], row["kind"]) == ("a", "unchecked")
    assert row["text"] == "the queue is stopping"


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
