"""One Spark for all tests of this folder; no Java is a failure unless it is allowed.

Where Spark is not installed nothing here is collected: other parts look in this folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from harness.delta_jobs import Desk

from rq.errors import NoJava
from rq.spark import classes, duck, functions, java, jobs
from rq.spark.duck_tables import DuckTables
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job

NEEDED = ("pyspark", "asyncssh", "deltalake", "duckdb", "moto", "polars", "psutil")
if any(importlib.util.find_spec(name) is None for name in NEEDED):
    collect_ignore_glob = ["test_*.py"]

# What starts fast, and with little memory: these tests are small.
FAST = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    # To compile what reads a few rows takes longer than to interpret it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


SECRET = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def pytest_collection_modifyitems(items):
    """Mark all tests here, and skip what needs Java where its absence is allowed."""
    for item in items:
        if "/test/spark/" in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def java_home():
    """Give the Java that Spark will run on."""
    try:
        found = java.find(os.environ)
    except NoJava as error:
        if os.environ.get("RQ_ALLOW_NO_JAVA") == "1":
            pytest.skip(f"{str(error).splitlines()[0]} -> ./bin/rq up --spark")
        raise
    classes.keep(found)  # as `rq up --spark` does it
    return found


@pytest.fixture(scope="session")
def spark_env(java_home, tmp_path_factory):
    """Give the variables that a job of a test is started with."""
    root = tmp_path_factory.mktemp("spark-root")
    return {
        "RQ_ROOT": str(root),
        "RQ_SPARK_MASTER": "local[2]",
        "RQ_SPARK_CONF": json.dumps(FAST),
        "RQ_JAVA_HOME": str(java_home.home),
    }


@pytest.fixture(scope="session")
def one_session(spark_env):
    """Give the one session of the run, whose workers may ask the store of these tests."""
    from rq.spark.session import close, session

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**spark_env, **SECRET}.items():
            patch.setenv(name, value)
        made = session("rq-tests", master="local[2]")
        yield made
        close(made)


@pytest.fixture
def spark(one_session):
    """Give the one session, where Spark looks for sources: a test before this one may have
    left another one there."""
    one_session._jvm.SparkSession.setActiveSession(one_session._jsparkSession)
    return one_session


# A process of its own: some calls of delta-rs let no other thread of this one run.
_STORE = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print(server.get_host_and_port()[1], flush=True)
input()
"""


@pytest.fixture(scope="session")
def store():
    """Give an S3 of these tests: the end of its URLs, and its host."""
    words = [sys.executable, "-c", _STORE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, stderr=subprocess.DEVNULL) as server:
        try:
            lines = (line.decode().strip() for line in server.stdout)
            port = next(line for line in lines if line.isdigit())
            with pytest.MonkeyPatch.context() as patch:
                for name, value in SECRET.items():
                    patch.setenv(name, value)
                host = f"127.0.0.1:{port}"
                yield f"?endpoint_override={host}&scheme=http&region=us-east-1", host
        finally:
            server.kill()


@pytest.fixture
def give(tmp_path, monkeypatch):
    """Give a function that makes a message with a file."""
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def give(msg_id, name, data):
        place = os.fsencode(tmp_path / msg_id / "attach")
        os.makedirs(place)
        with open(os.path.join(place, os.fsencode(name)), "wb") as file:
            file.write(data)
        return Given(msg_id, tmp_path / msg_id)

    return give


@pytest.fixture
def on_each(spark):
    """Give a function that calls a job on DuckDB and on Spark, and returns what each call
    has become."""

    from rq.spark.spark_tables import SparkTables

    def on_each(function, messages):
        batch = Batch("b", "logs", tuple(messages))
        own = DuckTables(duck.session(duck.Limits("200MB", 2), batch.readable), 2)
        ended = []
        try:
            for tables in (own, SparkTables(spark)):
                functions.F.use(tables.engine)
                ended.append(jobs.call(Job(function), batch, Desk(tables), messages))
                figures = json.loads(ended[-1].figures([]))
                ended[-1].counted = {
                    name: figures.get(name) for name in ("rejected", "malformed")
                }
        finally:
            functions.F.use(functions.SPARK)
            own.close()
        return ended

    return on_each


@pytest.fixture(autouse=True)
def all_on_loopback():
    """Fail a test at whose end this process, or one it started, listens off loopback."""
    yield
    assert listening_outside() == []


def listening_outside():
    """List what this process and its children listen on that is not loopback."""
    import psutil

    own = psutil.Process()
    found = []
    for process in [own, *own.children(recursive=True)]:
        try:
            lines = process.net_connections("inet")
        except psutil.Error:
            continue
        found += [
            (process.name(), line.laddr)
            for line in lines
            if line.status == psutil.CONN_LISTEN
            and not line.laddr.ip.startswith(("127.", "::1", "::ffff:127."))
        ]
    return found
