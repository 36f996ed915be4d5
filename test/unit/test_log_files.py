"""The log of a process, which is rotated when it is full."""

import logging
import os

import pytest

from rq import logs


@pytest.fixture
def log(tmp_path, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(logs, "ROTATE_BYTES", 4000)
    path = tmp_path / "log/a.log"
    yield path
    root.handlers[0].close()


# Of three bytes to a character: a size in characters is too small by far.
def write(path, number):
    logs.open_log("a", path)
    for at in range(number):
        logging.getLogger("rq").info("等等等等: %s", logs.fields(at=at))
    logging.getLogger().handlers[0].flush()


def test_no_log_grows_past_its_size_and_no_line_is_lost(log):
    write(log, 150)
    files = sorted(log.parent.iterdir())
    assert len(files) > 2
    assert all(file.stat().st_size <= 4000 for file in files)
    lines = [line for file in files for line in file.read_text().splitlines()]
    numbers = sorted(int(line.rpartition("at=")[2]) for line in lines)
    assert numbers == list(range(150))


def test_what_an_earlier_process_has_written_counts(log):
    log.parent.mkdir()
    log.write_text("x" * 3990 + "\n")
    write(log, 1)
    assert log.stat().st_size < 200
    assert log.with_name("a.log.1").stat().st_size == 3991


def test_a_line_names_the_process_that_wrote_it(log):
    write(log, 1)
    pid = os.fork()
    if pid == 0:
        logging.getLogger("rq").info("child")
        os._exit(0)
    os.waitpid(pid, 0)
    first, second = log.read_text().splitlines()
    assert f" {os.getpid()} a: " in first
    assert f" {pid} a: child" in second
