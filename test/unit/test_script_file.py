"""When the file of a script is tried again."""

import pytest

from rq.message.causes import Cause
from rq.scripts.script_file import REFUSED_SECONDS, SCRIPT_SECONDS, ScriptFile


@pytest.fixture
def file(tmp_path):
    (tmp_path / "run").write_text("#!/no/such/interpreter\n")
    (tmp_path / "run").chmod(0o755)
    return ScriptFile(tmp_path, "run")


def next_try(file, now):
    """Refuse it now, and return when it is tried again."""
    assert file.ready(now, has_worker=False)
    file.not_started(Cause.SCRIPT, "run: No such file or directory", now)
    while not file.ready(now, has_worker=False):
        assert file.retry_at > now
        now = file.retry_at
    return now


def test_a_file_that_the_kernel_refuses_is_tried_later_and_later(file):
    now = 1000.0
    waited = []
    for _ in range(8):
        again = next_try(file, now)
        waited.append(again - now)
        now = again
    assert waited == sorted(waited)
    assert waited[0] == SCRIPT_SECONDS
    assert waited[-1] >= REFUSED_SECONDS


@pytest.mark.parametrize("cause", [Cause.SCRIPT, Cause.SPAWN])
def test_starts_that_fail_together_have_failed_once(file, cause):
    assert file.ready(1000.0, has_worker=False)
    for _ in range(20):
        file.not_started(cause, "run: in vain", 1000.0)
    assert file.not_before(1000.0 + SCRIPT_SECONDS, has_worker=False) is None


@pytest.mark.parametrize("mended", ["edited", "told", "started"])
def test_it_is_tried_at_the_next_look_when_something_has_changed(
    file, mended, tmp_path
):
    now = 1000.0
    for _ in range(5):
        now = next_try(file, now)
    file.not_started(Cause.SCRIPT, "run: No such file or directory", now)
    if mended == "edited":
        (tmp_path / "run").write_text("#!/bin/sh\n: mended\n")
    elif mended == "told":
        file.look_again()
    else:
        file.is_back()
    assert file.ready(now + SCRIPT_SECONDS, has_worker=False)


def test_a_file_that_goes_while_it_is_looked_at_is_not_there(file, tmp_path):
    (tmp_path / "run").unlink()
    assert not file.ready(1000.0, has_worker=False)
    assert "no such file" in file.error


def fit(path):
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_a_file_that_was_fit_is_looked_at_again_when_it_is_touched(tmp_path):
    fit(tmp_path / "run")
    file = ScriptFile(tmp_path, "run")
    assert file.ready(1000.0, has_worker=False)
    assert file.ready(1000.0, has_worker=False)
    (tmp_path / "run").chmod(0o644)
    assert not file.ready(1000.0, has_worker=False)
    assert "chmod" in file.error


def test_a_file_that_was_fit_and_is_gone_is_missed_at_once(tmp_path):
    fit(tmp_path / "run")
    file = ScriptFile(tmp_path, "run")
    assert file.ready(1000.0, has_worker=False)
    (tmp_path / "run").unlink()
    assert not file.ready(1000.0, has_worker=False)


@pytest.mark.parametrize("how", ["another file", "the same file, moved"])
def test_a_link_that_leads_elsewhere_is_followed_at_the_next_look(tmp_path, how):
    fit(tmp_path / "one/run")
    (tmp_path / "now").symlink_to("one")
    file = ScriptFile(tmp_path, "now/run")
    assert file.ready(1000.0, has_worker=False)
    if how == "another file":
        fit(tmp_path / "two/run")
    else:
        (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / "now").unlink()
    (tmp_path / "now").symlink_to("two")
    assert file.ready(1000.0, has_worker=False)
    assert file.path == str(tmp_path.resolve() / "two/run")
