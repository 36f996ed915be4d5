"""Which changes are hints to scandir, and how seldom it looks at all without one."""

import pytest

from rq.scandir import __main__ as scandir

QUEUES = "/r/queue/"


@pytest.mark.parametrize(
    ("path", "is_news"),
    [
        ("/r/config/q.down", True),
        ("/r/scandir/q", True),
        ("/r/queue/q", True),
        ("/r/queue/.checkpoint.lock", False),
        ("/r/queue/q/config.json", True),
        ("/r/queue/q/parked.json", True),
        ("/r/queue/q/checkpoint", False),
        ("/r/queue/q/queue.pid", False),
        ("/r/queue/q/new/a", True),
    ],
)
def test_what_an_owner_writes_for_itself_is_no_hint(path, is_news):
    assert scandir._is_news(QUEUES, path) is is_news


class Watched:
    """A watcher as scandir asks it."""

    def __init__(self, missing="", has_more=False):
        self.missing, self.has_more = missing, has_more


class Looked:
    gone_since = None


@pytest.mark.parametrize(
    ("watched", "took", "pause"),
    [
        (Watched(), 0.001, 2.0),
        (Watched(), 0.1, 15.0),
        (Watched(), 1.0, 60.0),
        (Watched(has_more=True), 1.0, 2.0),
        (Watched(missing="no inotify"), 0.001, 0.8),
        (Watched(missing="no inotify"), 1.0, 20.0),
    ],
)
def test_a_look_takes_a_small_part_of_the_time(watched, took, pause):
    assert scandir._pause(watched, Looked(), took) == pytest.approx(pause)
