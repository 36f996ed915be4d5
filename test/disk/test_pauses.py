"""Pauses of queues: what their files say, whoever wrote them, and when they are over."""

import os

import pytest

from rq.config import admin
from rq.config.admin import Admin, Pause, admin_status, pause_of
from rq.layout import Root

SAID = Pause(by="ann", why="disk swap", since=1000.0, until=2000.0)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "config").mkdir()
    return Root(tmp_path)


def paused(root, pause=SAID, touched=1000.0):
    admin.pause(root, "q", pause)
    os.utime(root.pause("q"), (touched, touched))


def test_a_pause_says_by_whom_why_and_until_when(root):
    paused(root)
    assert pause_of(root, "q", 1500.0) == SAID
    assert admin_status(root, "q", 1500.0) is Admin.PAUSE


def test_it_is_over_at_its_end_and_comes_back_only_with_the_clock(root):
    paused(root)
    assert admin_status(root, "q", 1999.9) is Admin.PAUSE
    assert admin_status(root, "q", 2000.0) is Admin.UP
    assert admin_status(root, "q", 1999.0) is Admin.PAUSE
    assert admin.ends(root) == {"q": 2000.0}
    admin.resume(root, "q")
    assert admin_status(root, "q", 1999.0) is Admin.UP


def test_a_file_that_somebody_touches_is_a_pause_without_end(root):
    root.pause("q").touch()
    assert admin_status(root, "q", 9e9) is Admin.PAUSE
    assert pause_of(root, "q").since == pytest.approx(root.pause("q").stat().st_mtime)
    paused(root, touched=2001.0)
    assert admin_status(root, "q", 9e9) is Admin.PAUSE
    assert admin.ends(root) == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"\xff", b'{"until": true}', b'{"until": 1e300, "why": 5}',
     b'{"until": -1, "by": null}', b"x" * 100_000, b'{"since": "now"}'],
)  # fmt: skip
def test_whatever_stands_in_the_file_it_is_a_pause(root, content):
    root.pause("q").write_bytes(content)
    pause = pause_of(root, "q", 9e9)
    assert (pause.by, pause.why, pause.until) == ("", "", None)


def test_a_link_to_nowhere_is_a_pause(root):
    root.pause("q").symlink_to("nowhere")
    assert pause_of(root, "q") == Pause()
    assert admin_status(root, "q") is Admin.PAUSE


def test_who_says_nothing_new_leaves_a_pause_as_it_is(root):
    far = Pause(by="ann", why="disk swap", since=1.0, until=3e10)
    paused(root, far)
    admin.pause(root, "q", Pause(by="bob", since=5.0))
    assert pause_of(root, "q") == far
    admin.pause(root, "q", Pause(by="bob", why="still", since=5.0))
    assert pause_of(root, "q") == Pause(by="bob", why="still", since=5.0)


def test_down_beats_pause(root):
    paused(root)
    admin.set_down(root, "q", True)
    assert admin_status(root, "q", 1500.0) is Admin.DOWN


def test_what_cannot_be_seen_is_made_visible(root):
    paused(root, Pause(why="a\u202eb", since=1.0))
    assert pause_of(root, "q").why == "a<U+202E>b"
