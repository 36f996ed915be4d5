"""Whose a queue is, when that cannot be read just now: nothing is made or changed."""

import json
from pathlib import Path

import pytest

from rq import config
from rq.config import files, trash
from rq.errors import CannotRead
from rq.layout import Root
from rq.scandir import passes
from rq.scandir.links import Definition
from rq.scandir.passes import Scandir
from rq.supervisor import definitions

CONFIG = {"name": "a", "script": "/bin/true", "num_workers": 1}


@pytest.fixture
def root(tmp_path):
    made = Root(tmp_path)
    files.make_root(made)
    return made


@pytest.fixture
def lacking(monkeypatch):
    """Let no mark of a queue be read, as often as that is asked for."""

    def read(path, known=config.read_json):
        if path.name == "scandir.json":
            raise CannotRead(f"{path} cannot be read: Too many open files")
        return known(path)

    with monkeypatch.context() as patched:
        patched.setattr(config, "read_json", read)
        yield


def test_a_queue_of_the_api_is_not_changed_while_nobody_knows_whose_it_is(
    root, lacking
):
    definitions.create(root, CONFIG)
    before = root.queue("a").config.read_bytes()
    wanted = {"config": {**CONFIG, "num_workers": 9}, "link": "l", "form": None}
    with pytest.raises(CannotRead):
        definitions.define(root, wanted)
    assert root.queue("a").config.read_bytes() == before


def test_a_deletion_does_not_forget_the_link_that_it_cannot_read(root, lacking):
    definitions.create(root, CONFIG)
    before = root.queue("a").scandir_mark.read_bytes()
    with pytest.raises(CannotRead):
        definitions.begin_deletion(root, "a")
    assert root.queue("a").scandir_mark.read_bytes() == before
    assert definitions.half_deleted(root) == []


def test_a_deleted_queue_does_not_come_back_while_its_link_cannot_be_read(
    root, lacking, monkeypatch
):
    definitions.create(root, CONFIG)
    mark = {"owner": "scandir", "link": "l", "deleting": True}
    root.queue("a").scandir_mark.write_text(json.dumps(mark))
    trash.put(root, root.queue("a"))
    asked = []
    monkeypatch.setattr(passes.client, "ask", lambda *words, **_: asked.append(words))
    wanted = Definition("a", Path("/a"), CONFIG, "l", None)
    assert "cannot be read" in Scandir(root)._make_so(wanted, None)
    assert asked == []
