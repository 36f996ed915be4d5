"""The command that `rq up` names works where the person is."""

from __future__ import annotations

import os
import subprocess

from harness.checkout import CHECKOUT

from rq.cli import up


def test_the_command_that_is_named_works_from_where_it_is_said(tmp_path, monkeypatch):
    names = {}
    for place in (CHECKOUT, CHECKOUT / "bin", CHECKOUT / "rq", tmp_path):
        monkeypatch.chdir(place)
        names[place] = up._of_checkout()
        said = ["sh", "-c", f"command -v {names[place]}"]
        subprocess.run(said, check=True, capture_output=True)
        assert ".." not in names[place]
    assert names[CHECKOUT] == "./bin/rq"
    assert os.path.isabs(names[tmp_path])
