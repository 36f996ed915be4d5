"""What a queue takes for its operator's will, while the files change under it."""

import json
import os
import time
from pathlib import Path

from harness.waiting import wait_until

from rq.config.admin import Admin, AdminFiles
from rq.layout import Root

OLD = 1_000_000_000.0  # epoch seconds


def queue(tmp_path: Path) -> tuple[Path, AdminFiles]:
    (tmp_path / "config").mkdir()
    root = Root(tmp_path)
    return root.pause("q"), AdminFiles(root, "q")


def test_a_pause_that_is_written_over_is_read_again(tmp_path: Path) -> None:
    pause, files = queue(tmp_path)
    for why in ("disk", "fire"):  # of one length, and with one time of change
        pause.write_text(json.dumps({"why": why}))
        os.utime(pause, (OLD, OLD))
        for _ in range(2):
            admin, said = files.read(OLD)
            assert admin is Admin.PAUSE
            assert said is not None
            assert said.why == why


def test_a_pause_ends_by_the_clock_and_by_hand(tmp_path: Path) -> None:
    pause, files = queue(tmp_path)
    pause.write_text(json.dumps({"until": OLD + 10}))
    os.utime(pause, (OLD, OLD))
    assert files.read(OLD)[0] is Admin.PAUSE
    assert files.read(OLD + 10) == (Admin.UP, None)
    os.utime(pause)  # touched after its end: a pause without one
    assert files.read(OLD + 20)[0] is Admin.PAUSE
    pause.unlink()
    assert files.read(OLD + 20) == (Admin.UP, None)


def test_down_rules_over_a_pause(tmp_path: Path) -> None:
    pause, files = queue(tmp_path)
    pause.touch()
    pause.with_suffix(".down").touch()
    assert files.read(OLD) == (Admin.DOWN, None)


def test_what_comes_into_a_directory_without_either_is_seen_at_once(tmp_path):
    pause, files = queue(tmp_path)
    down = pause.with_suffix(".down")
    for wanted, file in ((Admin.PAUSE, pause), (Admin.DOWN, down)) * 2:
        is_old = lambda: time.time() - pause.parent.stat().st_ctime > 1.1  # noqa: E731
        wait_until(is_old)
        assert files.read(OLD)[0] is Admin.UP
        assert files.read(OLD)[0] is Admin.UP
        file.touch()
        assert files.read(OLD)[0] is wanted
        file.unlink()
        assert files.read(OLD)[0] is Admin.UP
