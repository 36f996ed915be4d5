"""The environment of a script, whole (spec: worker environment)."""

import sys
from pathlib import Path

import pytest
from harness.spool import a_message

import rq
from rq.config.settings import QueueConfig, RootConfig
from rq.scripts import environment
from rq.scripts.program import Program
from rq.scripts.slots import Slot

MAIN = RootConfig(
    env="production",
    host="h",
    port=3333,
    relative_root="/rq/",
    tmpdir="/tmp",
    worker_env={"PATH": "/bin", "HOME": "/root", "RUBYOPT": "x", "TMPDIR": "/x"},
)
QUEUE = QueueConfig(
    script="./run", env_vars={"COLOUR": "red", "RQ_ENV": "lie", "PATH": "/mine"}
)
BASE = "http://h:3333/rq/"
ID = "20270115.0800.00.000.1"


def env_of(message=None, main=MAIN):
    script = Program(
        path="/real/run",
        argv_prefix=[],
        env=environment.fixed(Path("/r"), main, QUEUE),
        nice=0,
        family=None,
    )
    job = "/r/queue/jobs/run/x/job"
    values = environment.of_message(main, "jobs", message or a_message(), job)
    return script.plan(Slot(0, 0, "lease/1"), values, directory=job, output=1).env


def test_a_script_gets_these_variables_and_no_other():
    own = a_message(dest="jobs", count=2, param1="a b", param2={"x": [1]}, param3="")
    assert env_of(own.with_(orig_msg_id="http://first/q/x/1")) == {
        "PATH": "/mine",
        "HOME": "/root",
        "TMPDIR": "/tmp",
        "COLOUR": "red",
        "RQ_ROOT": "/r",
        "RQ_VER": rq.__version__,
        "RQ_ENV": "production",
        "RQ_HOST": BASE,
        "RQ_PORT": "3333",
        "RQ_SCRIPT": "./run",
        "RQ_REALSCRIPT": "/real/run",
        "RQ_WRITE": "3",
        "RQ_READ": "4",
        "RQ_PIPE": "3",
        "RQ_PYTHON": sys.executable,
        "RQ_SHARE": environment.SHARE,
        "RQ_MSG_ID": ID,
        "RQ_FULL_MSG_ID": f"{BASE}q/jobs/{ID}",
        "RQ_ORIG_MSG_ID": "http://first/q/x/1",
        "RQ_MSG_DIR": "/r/queue/jobs/run/x/job",
        "RQ_COUNT": "2",
        "RQ_LEASE": "lease/1",
        "RQ_DEST": f"{BASE}q/jobs/",
        "RQ_DEST_QUEUE": "jobs",
        "RQ_PARAM1": "a b",
        "RQ_PARAM2": '{"x":[1]}',
        "RQ_PARAM3": "",
        "RQ_PARAM4": "",
    }


def test_where_jobs_on_spark_run_is_said_only_if_the_queue_says_it():
    spark = {"master": "spark://h:7077", "conf": {"spark.driver.memory": "2g"}}
    spark["allow"] = ["s3://logs/"]
    env = environment.fixed(Path("/r"), MAIN, QueueConfig(script="x", spark=spark))
    assert env["RQ_SPARK_MASTER"] == "spark://h:7077"
    assert env["RQ_SPARK_CONF"] == '{"spark.driver.memory": "2g"}'
    assert env["RQ_SPARK_ALLOW"] == '["s3://logs/"]'


def test_a_queue_may_say_where_the_java_of_its_jobs_is():
    given = {"RQ_JAVA_HOME": "/java", "RQ_JVM_DIR": "/jvm", "RQ_ROOT": "/evil"}
    config = QueueConfig(script="x", env_vars=given)
    assert environment.fixed(Path("/r"), MAIN, config).items() >= {
        ("RQ_JAVA_HOME", "/java"),
        ("RQ_JVM_DIR", "/jvm"),
        ("RQ_ROOT", "/r"),
    }


def test_the_commands_of_rq_are_the_last_place_of_the_path():
    env = environment.fixed(Path("/r"), MAIN, QueueConfig(script="x"))
    assert env["PATH"] == f"/bin:{environment.COMMANDS}"
    assert (Path(environment.COMMANDS) / "rq").exists()


@pytest.mark.parametrize(
    ("dest", "variables"),
    [
        ("http://o:1/q/x", {"RQ_DEST": "http://o:1/q/x", "RQ_DEST_QUEUE": "x"}),
        ("https://o/q/x/1", {"RQ_DEST": "https://o/q/x/1", "RQ_DEST_QUEUE": "x"}),
        ("http://o:1/", {"RQ_DEST": "http://o:1/"}),
        ("httpd", {"RQ_DEST": f"{BASE}q/httpd/", "RQ_DEST_QUEUE": "httpd"}),
    ],
)
def test_dest_is_a_url_and_its_queue(dest, variables):
    env = env_of(a_message(dest=dest))
    assert {k: v for k, v in env.items() if k.startswith("RQ_DEST")} == variables


@pytest.mark.parametrize(("asked", "shown"), [(True, "1"), ("0", "1"), (False, None)])
def test_force_remote_is_there_only_when_it_was_asked(asked, shown):
    assert env_of(a_message(force_remote=asked)).get("RQ_FORCE_REMOTE") == shown


def test_nothing_comes_from_the_shell_that_started_rq(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    monkeypatch.setenv("RQ_PARAM1", "old")
    env = env_of(main=RootConfig(host="h", port=1))
    assert "LD_PRELOAD" not in env
    assert env["RQ_PARAM1"] == ""
    assert env["PATH"] == "/mine"
    assert {"HOME", "USER", "LANG", "TZ", "TMPDIR"} <= env.keys()


def test_every_value_can_be_an_environment_variable():
    for name, value in env_of(a_message(param1=[1, None, {"a": "\0"}])).items():
        assert "\0" not in name + value
        assert "=" not in name
