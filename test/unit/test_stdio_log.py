"""The log of an attempt, on a disk that takes no more."""

import os

from harness.limits import files_of

from rq.files import beneath
from rq.scripts.log import StdioLog
from rq.spool import batch_dirs


def begun(tmp_path):
    """Begin a log in the directory `job`."""
    (tmp_path / "job").mkdir()
    top = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    return StdioLog(
        top, "job", beneath.open_place("job", top), "run", batch_dirs.set_aside
    )


def test_a_script_that_runs_is_none_that_could_not_be_started(tmp_path):
    log = begun(tmp_path)
    with files_of(0):
        log.started(1234)  # raises nothing: its message would be started again
    log.close()
    log.end("1234 - RQ END", wanted=True)


def test_the_last_line_that_finds_no_room_leaves_no_file_open(tmp_path):
    log = begun(tmp_path)
    log.close()
    before = set(os.listdir("/proc/self/fd"))
    with files_of(0):
        log.end("1234 - RQ END", wanted=True)
    assert set(os.listdir("/proc/self/fd")) <= before
