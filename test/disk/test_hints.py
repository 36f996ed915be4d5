"""Hints of changed files: of directories that were replaced, and of hints that were lost."""

import math

from harness.waiting import wait_until

from rq.files.watch import Watcher
from rq.layout import Root
from rq.scandir import __main__ as scandir
from rq.scandir.passes import Scandir


def test_a_directory_that_was_made_again_is_watched_again(tmp_path):
    watched = tmp_path / "new"
    watched.mkdir()
    watcher, paths = Watcher(), frozenset([str(watched)])
    watcher.follow(paths)
    watched.rmdir()
    watched.mkdir()  # many file systems give it the same number at once

    def is_heard():
        watcher.follow(paths)
        (watched / "x").touch()
        (watched / "x").unlink()
        return watched / "x" in watcher.hints()

    wait_until(is_heard)
    watcher.close()


def test_after_hints_were_lost_each_parked_queue_is_looked_at(tmp_path):
    watcher, looks = Watcher(), Scandir(Root(tmp_path))
    looks.parked, looks.soonest = {"q": [1]}, math.inf
    scandir._pass(watcher, looks, math.inf)
    assert looks.parked
    watcher.has_lost = True
    scandir._pass(watcher, looks, math.inf)
    assert not looks.parked
    watcher.close()
