"""A day is stale when the script is another by now, or a module beside it that it imports."""

from __future__ import annotations

import hashlib

import pytest

from rq import days


@pytest.fixture
def script(tmp_path):
    (tmp_path / "code/deep").mkdir(parents=True)
    for name, text in {
        "run": "#!/usr/bin/env rq-spark\nimport os, forms\ndef run(q):\n    from deep import x\n",
        "forms.py": "import parts.one\nimport json\n",
        "parts/__init__.py": "",
        "parts/one.py": "from . import two\n",
        "deep/__init__.py": "",
        "deep/x.py": "import forms\n",
        "other.py": "",
        "os.py.txt": "",
    }.items():
        path = tmp_path / "code" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "link").symlink_to(tmp_path / "code")
    return tmp_path / "link/run"


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("run", True),
        ("forms.py", True),
        ("parts/one.py", True),
        ("deep/x.py", True),
        ("other.py", False),
        ("os.py.txt", False),
    ],
)
def test_what_a_script_imports_from_beside_it_counts(script, name, counts):
    before = days.digest(script)
    path = script.parent / name
    path.write_text(path.read_text() + "# changed\n")
    assert (days.digest(script) != before) is counts


def test_a_script_alone_has_the_digest_of_its_text(tmp_path):
    for text in ("import json\n", "#!/bin/sh\necho 'no Python'\n", "x = '\0'\n"):
        (tmp_path / "run").write_text(text)
        alone = hashlib.sha256(text.encode()).hexdigest()[:16]
        assert days.digest(tmp_path / "run") == alone
    assert days.digest(tmp_path / "gone") == ""


def test_modules_that_change_places_count(tmp_path):
    (tmp_path / "run").write_text("import a, b\n")
    (tmp_path / "a.py").write_text("1\n")
    (tmp_path / "b.py").write_text("2\n")
    before = days.digest(tmp_path / "run")
    (tmp_path / "a.py").write_text("2\n")
    (tmp_path / "b.py").write_text("1\n")
    assert days.digest(tmp_path / "run") != before
