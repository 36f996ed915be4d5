"""`rq index`: how far it has read, and that it is made again."""

import json
import re

import pytest
from harness.index import Lines, bare_root, fill, message_id

from rq.cli.index import index
from rq.errors import Refused, Unreachable
from rq.index import schema, word
from rq.proc import locks


@pytest.fixture
def root(tmp_path):
    return bare_root(tmp_path)


@pytest.fixture
def filled(root):
    lines = Lines("mail")
    lines.accept(message_id(1))
    fill(root, lines)
    return root


def test_status_says_how_far_it_is(filled, capsys):
    assert index(filled, ["status"]) == 0
    assert re.fullmatch(r"as of 20\S+ \S+ UTC; \S+ KiB\n", capsys.readouterr().out)
    assert index(filled, ["status", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.keys() == {"as_of", "read", "is_building", "bytes"}
    assert said["read"] == 1


def test_status_says_that_it_is_being_made(root, capsys):
    fill(root, is_built=False)
    assert index(root, ["status"]) == 0
    assert "is being made: 100 % of the journals is read" in capsys.readouterr().out


def test_rebuild_asks_the_process(filled, capsys):
    held = locks.lock(filled.config_dir / "index.lock")
    assert held is not None
    with pytest.raises(Refused):
        index(filled, ["rebuild"])
    with word.listen(filled) as sock:
        assert index(filled, ["rebuild"]) == 0
        assert word.asks_rebuild(sock.recv(word.LONGEST))
    assert schema.place(filled).exists()


def test_rebuild_removes_it_while_no_process_is_there(filled, capsys):
    assert index(filled, ["rebuild"]) == 0
    assert not schema.place(filled).exists()
    with pytest.raises(Unreachable):
        index(filled, ["status"])
