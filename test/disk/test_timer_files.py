"""What is kept of timers, and their files when they cannot be read just now."""

import asyncio
import json

import pytest
from harness.limits import no_descriptors

from rq.errors import CannotRead
from rq.layout import Root
from rq.timers import folder, state
from rq.timers.folder import Timers
from rq.timers.past import Fire, Past
from rq.timers.sending import Sending


def test_what_timers_did_is_not_forgotten_by_who_cannot_read_it_now(tmp_path):
    # They would fire anew, all of them, and what was known be written over.
    kept = tmp_path / "timers.json"
    kept.write_text(json.dumps({"timers": {"daily": {"last": 1000.0}}}))
    with no_descriptors(), pytest.raises(CannotRead, match="Too many open files"):
        state.read_state(kept)
    assert state.read_state(kept)["daily"].last == 1000.0


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
        patched.setattr(folder, "parse", lacks)
        for now in range(2):
            timers.look(float(now), 0.0)
    said = f"{path} cannot be read: Too many open files"
    assert timers.errors == {"daily.json": said}
    timers.look(2.0, 0.0)
    assert (list(timers.timers), timers.errors) == (["daily"], {})


@pytest.mark.parametrize("begun", [None, 900.0])
def test_a_fire_that_nobody_was_asked_for_is_decided_anew(tmp_path, begun):
    # So what it is to catch up counts when its queue is there. One that was begun before
    # may have been sent then: it is asked for again.
    root = Root(tmp_path)
    for place in (root.timers, root.config_dir):
        place.mkdir()
    path = root.timers / "t.json"
    path.write_text(json.dumps({"period": 60, "msg": {"dest": "q"}}))
    held = Timers(root, {"t": Past(last=840.0, begun=begun)})
    held.look(0.0, 900.0)
    asyncio.run(Sending(held).fire(held.timers["t"], 900.0))
    assert held.past["t"].error == "there is no queue 'q'"
    assert (held.past["t"].failures, held.past["t"].begun) == (1, begun)


def test_what_a_timer_has_done_is_read_as_it_was_kept(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    fires = tuple(Fire(float(n), n + 0.5, "sent", f"http://h/q/q/{n}") for n in (1, 2))
    held = Timers(root, {"t": Past(last=2.0, rule="x", paused=3.0, fires=fires)})
    held.save()
    assert state.read_state(root.timers_state) == held.past


def test_what_did_not_change_is_not_written_again(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    held = Timers(root, {"t": Past(last=2.0)})
    held.save()
    root.timers_state.unlink()
    held.save()
    assert not root.timers_state.exists()
    held.note("t", last=3.0)
    held.save()
    assert state.read_state(root.timers_state)["t"].last == 3.0
