"""The log of an attempt, on a disk that takes no more."""

import resource

import pytest

from rq.queues.stdio import StdioLog


@pytest.fixture
def full():
    """Let no file be written from now on, when it is called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_script_that_runs_is_none_that_could_not_be_started(tmp_path, full):
    log = StdioLog(str(tmp_path), "run")
    try:
        full()
        log.started(1234)  # raises nothing: its message would be started again
    finally:
        log.close()
    log.end("1234 - RQ END", wanted=True)
