"""Links to the queues that come with RQ lead to the code that starts; all others stay."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rq.config import bundled, files, trash
from rq.layout import Root

MINE = bundled.BUNDLED / "demo"
TIMED = bundled.BUNDLED / "cleaner"


@pytest.fixture
def root(tmp_path) -> Root:
    """A root whose links lead to other code, with the queue that one has made."""
    made = Root(tmp_path / "root mit ö")
    files.make_root(made)
    files.write_state(bundled.note_of(made), {"offered": ["cleaner", "demo"]})
    return made


def lead(root: Root, code: Path, name: str = "demo") -> None:
    """Link a bundled queue of some code, and make the queue as scandir does."""
    directory = code / "rq/bundled" / name
    files.write_link(str(directory), root.scandir / name)
    queue = root.queue(name)
    config = {"script": str(directory / "run"), "num_workers": 3}
    files.make_queue(queue, config, {"owner": "scandir"})
    files.write_link(str(directory / "form.json"), queue.form)


def script(root: Root, name: str = "demo") -> str:
    return str(json.loads(root.queue(name).config.read_text())["script"])


def test_code_that_has_moved_is_found_again(root, tmp_path):
    """The old one is gone; the queue runs the new script before scandir has looked."""
    lead(root, tmp_path / "python3.11/site-packages")
    assert bundled.renew(root) == ["demo"]
    assert os.readlink(root.scandir / "demo") == str(MINE)
    assert script(root) == str(MINE / "run")
    assert json.loads(root.queue("demo").config.read_text())["num_workers"] == 3
    assert os.readlink(root.queue("demo").form) == str(MINE / "form.json")
    assert bundled.renew(root) == []


def test_a_link_within_a_checkout_is_followed_and_a_timer_too(root, tmp_path):
    lead(root, tmp_path / "old")
    files.write_link("../rq/bundled/cleaner", root.scandir / "cleaner")
    old = "../rq/bundled/cleaner/timer.json"
    files.write_link(old, root.timers / "cleaner.json")
    assert bundled.renew(root) == ["cleaner", "demo"]
    assert os.readlink(root.timers / "cleaner.json") == str(TIMED / "timer.json")


def test_what_the_operator_has_linked_or_removed_stays(root, tmp_path):
    mine = tmp_path / "definitions/demo"
    mine.mkdir(parents=True)
    files.write_link(str(mine), root.scandir / "demo")
    assert bundled.renew(root) == []
    assert os.readlink(root.scandir / "demo") == str(mine)
    assert not os.path.lexists(root.scandir / "cleaner")


def test_a_queue_that_runs_another_script_goes_on_with_it(root, tmp_path):
    lead(root, tmp_path / "old")
    files.write_state(root.queue("demo").config, {"script": "/srv/other"})
    bundled.renew(root)
    assert script(root) == "/srv/other"


def test_a_queue_that_was_deleted_does_not_come_back(root, tmp_path):
    """A link that is made again would bring it back."""
    lead(root, tmp_path / "old")
    trash.put(root, root.queue("demo"))
    before = os.readlink(root.scandir / "demo")
    assert bundled.renew(root) == []
    assert os.readlink(root.scandir / "demo") == before


def test_a_link_that_rq_has_not_made_is_not_its(root, tmp_path):
    files.write_state(bundled.note_of(root), {"offered": []})
    lead(root, tmp_path / "fork")
    assert bundled.renew(root) == []
