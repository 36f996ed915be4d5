"""The one way to a SparkSession: nothing off loopback, no page, quiet, UTC.

Settings come in this order, the last wins: those here, `conf`, RQ_SPARK_CONF (JSON, from
the queue's config: the operator of a queue has the last word on its jobs).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rq import config, names
from rq.config import checks, files, secrets
from rq.config.values import is_loopback
from rq.errors import BadConfig, Refused
from rq.layout import Root
from rq.logs import ROTATE_BYTES
from rq.spark import failures, java, scratch
from rq.words.nesting import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
# Java is told of it by name: on its class path it would keep `classes` from being shared.
_LOGGING = Path(__file__).parent / "conf" / "log4j2.properties"
_NO_CONF = "/nonexistent"
# Java is to keep what it learns, as `classes` asks it.
KEEP = "-XX:ArchiveClassesAtExit="
_SHUFFLE = "spark.sql.shuffle.partitions"
_LOCAL = re.compile(r"local(\[[^]]*\])?")
_END = 30.0  # seconds for a Java that was told to end
_OUTPUTS = (1, 2)  # Java complains on both


def session(
    app: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkSession:
    """Return the session of this process, started if there is none.

    `quiet`: what Java has to say goes to `log/spark.log` and not to standard error.
    BadConfig when Spark is not installed, Refused when it does not start, NoJava when
    there is no Java for it.
    """
    demand_spark()
    root = config.find_root(None)
    where = master or os.environ.get("RQ_SPARK_MASTER") or DEFAULT_MASTER
    try:
        checks.master(where)
    except ValueError as error:
        raise BadConfig(f"master: {error}") from None
    usable = java.find(os.environ)
    os.environ.update(environment(usable))
    wanted = all_settings(root, where, conf or {})
    directory = str(wanted["spark.local.dir"])
    os.environ["SPARK_SUBMIT_OPTS"] = _java_options(directory, usable)
    log = root.log / "spark.log" if quiet else None
    begun = log.stat().st_size if log is not None and log.exists() else 0
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _output_to(log):
            return _started(app, where, wanted)
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = "" if log is None else log.read_bytes()[begun:].decode(errors="replace")
        raise Refused(failures.not_started(error, text)) from error


def _started(app: str, master: str, wanted: Mapping[str, Json]) -> SparkSession:
    from pyspark.sql import SparkSession

    _start_java({"spark.app.name": app, "spark.master": master, **wanted})
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if _SHUFFLE not in wanted:
        spark.conf.set(_SHUFFLE, str(max(1, spark.sparkContext.defaultParallelism)))
    register(spark)
    return spark


def _start_java(wanted: Mapping[str, Json]) -> None:
    """Start the Java of this process, if there is none.

    Its command line is for all on this machine to read, so no secret is on it: these
    follow over the gateway, with all other settings.
    """
    from pyspark import SparkConf, SparkContext

    public = SparkConf(loadDefaults=False)
    for name, value in wanted.items():
        if not secrets.is_secret(name):
            public.set(name, str(value))
    SparkContext._ensure_initialized(conf=public)


@contextlib.contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """Let what is started meanwhile write what it has to say into a file, for good."""
    if log is None:
        yield
        return
    files.make_dir(log.parent)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(fd) for fd in _OUTPUTS]
    with log.open("ab") as file:
        if file.tell() > ROTATE_BYTES:
            file.truncate(0)
        for fd in _OUTPUTS:
            os.dup2(file.fileno(), fd)
    try:
        yield
    finally:
        sys.stderr.flush()
        for fd, before in zip(_OUTPUTS, kept, strict=True):
            os.dup2(before, fd)
            os.close(before)


def close(spark: SparkSession, seconds: float = _END) -> None:
    """Stop a session, wait until its Java has ended, and remove what that leaves. Java
    is killed when it has not ended after `seconds`."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:  # else its Java is gone
        type(spark).stop(spark)  # that of a job's session does nothing
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    if process is not None:
        _end(process, seconds)
    scratch.leave(_scratch(config.find_root(None)))


def kill_java() -> None:
    """End the Java of this process as kill -9 does; what it wrote is as after a crash."""
    # pyspark is there if a session was begun, perhaps half: load nothing on the way out.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is not None:
        _kill(process)
        scratch.leave(_scratch(config.find_root(None)))


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a Java by closing the pipe that it lives on."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _scratch(root: Root) -> Path:
    return root.spark / "local"


def demand_spark() -> None:
    """Raise BadConfig when Spark, or the shell of its launcher, is not installed."""
    missing = [
        name
        for name in ("pyspark", "pandas", "pyarrow")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise BadConfig(
            f"{', '.join(missing)} not installed: run `rq up --spark` (about 1.4 GB)"
        )
    if shutil.which("bash") is None:
        raise BadConfig("Spark's launcher is a bash script: install bash")


def environment(usable: java.Java) -> dict[str, str]:
    """Return the variables that Spark is started with."""
    return {
        **usable.environment,
        "SPARK_CONF_DIR": _NO_CONF,
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TZ": os.environ.get("TZ", "UTC"),
    }


def all_settings(root: Root, master: str, conf: Mapping[str, str]) -> dict[str, Json]:
    """Return the settings of a session; the queue's config has the last word."""
    return {**settings(root, master), **conf, **_from_environment()}


def settings(root: Root, master: str) -> dict[str, str]:
    """Return the settings of every session of this root."""
    warehouse = root.spark / "warehouse"
    try:
        files.make_dir(warehouse)
        local = scratch.enter(_scratch(root))
    except OSError as error:
        raise BadConfig(
            f"Spark needs to write to {root.spark}: {error.strerror}"
        ) from None
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.local.dir": str(local),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **(_loopback() if is_here(master) else {}),
        # Other users of this machine reach loopback too. Spark makes the secret itself,
        # in memory, where driver and executor are one process.
        **({"spark.authenticate": "true"} if _LOCAL.fullmatch(master) else {}),
    }


def _java_options(directory: str, usable: java.Java) -> str:
    """Let Java put its temporary files, too, where they are removed behind it."""
    before = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "java.io.tmpdir" in before:
        return before
    options = [
        before,
        # A Java without memory does not half live on: its exit status says what it lacked.
        "-XX:+ExitOnOutOfMemoryError",
        f'-Djava.io.tmpdir="{directory}"',
        f'-Dlog4j2.configurationFile="{_LOGGING}"',
    ]
    kept = usable.kept_classes()
    if kept is not None and KEEP not in before:
        # One that is out of date is no matter for a job's log: Java does without it.
        options += [f'-XX:SharedArchiveFile="{kept}"', "-Xlog:cds*=off"]
    return " ".join(options).lstrip()


def is_here(master: str) -> bool:
    """Return whether a master is on this host, so that nothing need listen outside."""
    _, is_url, places = master.partition("://")
    if not is_url:
        return master.startswith("local")
    try:
        hosts = [names.authority(place)[0] for place in places.split(",")]
    except ValueError:
        return False
    return all(map(is_loopback, hosts))


def register(spark: SparkSession) -> None:
    """Make `format("rq")` known, whatever other pyspark_* modules there are."""
    if importlib.util.find_spec("pyspark_rq") is None:
        return
    module = importlib.import_module("pyspark_rq")
    spark.dataSource.register(module.DefaultSource)


def another(spark: SparkSession) -> SparkSession:
    """Return a session on the Java of another one, with settings, views and functions of
    its own. It is the active one of this thread, where Spark looks for sources."""
    from pyspark.sql import SparkSession

    session = spark.newSession()
    SparkSession._activeSession = session
    spark._jvm.SparkSession.setActiveSession(session._jsparkSession)
    register(session)
    return session


def _loopback() -> dict[str, str]:
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def _from_environment() -> dict[str, Json]:
    text = os.environ.get("RQ_SPARK_CONF", "")
    if not text:
        return {}
    try:
        conf: Json = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfig(f"RQ_SPARK_CONF is not JSON: {error}") from None
    if not isinstance(conf, dict):
        raise BadConfig('RQ_SPARK_CONF is not an object: {"spark.NAME": "VALUE"}')
    return conf
