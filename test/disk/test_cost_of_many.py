"""What looks at all queues cost where there are very many: only what changed is read."""

import json

import pytest
from harness import left_parked
from harness.steps import calls

from rq import config
from rq.config import notices, recipients
from rq.config.settings import RootConfig
from rq.scandir.cache import JsonCache
from rq.scandir.links import read_links
from rq.scandir.passes import Scandir
from rq.supervisor import definitions

MANY = 30


@pytest.fixture
def root(tmp_path):
    root = left_parked.make_root(tmp_path / "root")
    root.scandir.mkdir()
    root.timers.mkdir()
    return root


def declare(root, number):
    """Declare queues by links, and make them."""
    for each in range(number):
        definition = root.path / "of" / f"q{each}"
        definition.mkdir(parents=True)
        (definition / "run").write_text("#!/bin/sh\n")
        (definition / "run").chmod(0o755)
        (root.scandir / f"q{each}").symlink_to(definition)
    for definition in read_links(root, JsonCache(), {}).definitions.values():
        request = {"config": definition.config, "link": definition.link, "form": None}
        definitions.define(root, request)


def test_scandir_reads_each_once(root):
    declare(root, MANY)
    scandir = Scandir(root)
    watched = scandir.look(0.0)
    assert scandir.errors == {}
    assert f"{root.queues}/q0/new" in watched
    again = calls(lambda: scandir.look(1.0))
    assert (again["open"], again["read_json"], again["_digest"]) == (0, 0, 0)
    assert again["listdir"] == 2
    assert again["__truediv__"] < MANY  # paths are put together of text


def test_scandir_sees_what_was_edited(root):
    declare(root, 2)
    scandir = Scandir(root)
    scandir.look(0.0)
    (root.path / "of" / "q1" / "config.json").write_text('{"num_workers": 7}')
    again = calls(lambda: scandir.look(1.0))
    assert again["_definition"] == 1
    assert [*scandir.errors] == ["q1"]  # there is no supervisor who changes it


def test_only_queues_that_tell_somebody_are_read_for_whom_they_tell(root):
    for each in range(MANY):
        left_parked.leave(root, f"q{each}")
    setting = next(iter(notices.SETTINGS))
    about = {"name": "q7", "script": "x", setting: {"queue": "away"}}
    root.queue("q7").config.write_text(json.dumps(about))
    said = []
    of_root = {"env": "t", "host": "127.0.0.1", "port": 3333}
    main = config.root_config(of_root, root.config)
    assert isinstance(main, RootConfig)
    counts = calls(lambda: said.extend(recipients.warnings(root, main)))
    assert counts["read_queue"] == 1
    assert [each.partition(":")[0] for each in said] == ["queue q7"]
