"""The files of timers, when they cannot be read just now."""

import json

import pytest
from harness.limits import no_descriptors

from rq.errors import CannotRead
from rq.layout import Root
from rq.timers import past, sending
from rq.timers.sending import Timers


def test_what_timers_did_is_not_forgotten_by_who_cannot_read_it_now(tmp_path):
    # They would fire anew, all of them, and what was known be written over.
    state = tmp_path / "timers.json"
    state.write_text(json.dumps({"timers": {"daily": {"last": 1000.0}}}))
    with no_descriptors(), pytest.raises(CannotRead, match="Too many open files"):
        past.read_state(state)
    assert past.read_state(state)["daily"].last == 1000.0


def test_a_timer_that_cannot_be_read_now_is_read_at_the_next_look(
    tmp_path, monkeypatch
):
    root = Root(tmp_path)
    root.timers.mkdir()
    message = {"dest": "q"}
    path = root.timers / "daily.json"
    path.write_text(json.dumps({"period": 86400, "msg": message}))
    timers = Timers(root, {})

    def lacks(path):
        raise CannotRead(f"{path} cannot be read: Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(sending, "parse", lacks)
        for now in range(2):
            timers.look(float(now))
    said = f"{path} cannot be read: Too many open files"
    assert timers.errors == {"daily.json": said}
    timers.look(2.0)
    assert (list(timers.timers), timers.errors) == (["daily"], {})
