"""The one way to a SparkSession: nothing off loopback, no page, quiet, UTC.

Settings come in this order, the last wins: those here, `conf`, RQ_SPARK_CONF (JSON, from
the queue's config: whoever runs a queue has the last word on its jobs).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rq import config
from rq.errors import BadConfig, Refused
from rq.layout import Root
from rq.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
CONF_DIR = Path(__file__).parent / "conf"
_SHUFFLE = "spark.sql.shuffle.partitions"
_LOCAL_NAMES = ("127.", "localhost", "[::1]")


def session(
    app: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of this process, started if there is none.

    Refused when Spark is not installed, NoJava when there is no Java for it.
    """
    demand_spark()
    root = config.find_root(None)
    where = master or os.environ.get("RQ_SPARK_MASTER") or DEFAULT_MASTER
    given = {**(conf or {}), **_from_environment()}
    os.environ.update(environment())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(where)
    for name, value in {**settings(root, where), **given}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if _SHUFFLE not in given:
        spark.conf.set(_SHUFFLE, str(max(1, spark.sparkContext.defaultParallelism)))
    register(spark)
    return spark


def close(spark: SparkSession) -> None:
    """Stop a session and wait until its Java has ended."""
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait()


def demand_spark() -> None:
    """Raise Refused when Spark, or the shell of its launcher, is not installed."""
    missing = [
        name
        for name in ("pyspark", "pandas", "pyarrow")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise Refused(
            f"{', '.join(missing)} not installed: run `rq up --spark` (about 1.1 GB)"
        )
    if shutil.which("bash") is None:
        raise Refused("Spark's launcher is a bash script: install bash")


def environment() -> dict[str, str]:
    """Return the variables that Spark is started with."""
    return {
        **java.find(os.environ).environment,
        "SPARK_CONF_DIR": str(CONF_DIR),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TZ": os.environ.get("TZ", "UTC"),
    }


def settings(root: Root, master: str) -> dict[str, str]:
    """Return the settings of every session of this root."""
    made = {name: root.spark / name for name in ("warehouse", "local")}
    try:
        for directory in made.values():
            directory.mkdir(parents=True, exist_ok=True)
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
        "spark.sql.warehouse.dir": str(made["warehouse"]),
        "spark.local.dir": str(made["local"]),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **(_loopback() if is_here(master) else {}),
    }


def is_here(master: str) -> bool:
    """Return whether a master is on this host, so that nothing need listen outside."""
    if master.startswith("local"):
        return True
    return master.partition("://")[2].startswith(_LOCAL_NAMES)


def register(spark: SparkSession) -> None:
    """Make `format("rq")` known, whatever other pyspark_* modules there are."""
    if importlib.util.find_spec("pyspark_rq") is None:
        return
    module = importlib.import_module("pyspark_rq")
    spark.dataSource.register(module.DefaultSource)


def _loopback() -> dict[str, str]:
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def _from_environment() -> dict[str, Any]:
    text = os.environ.get("RQ_SPARK_CONF", "")
    if not text:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfig(f"RQ_SPARK_CONF is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadConfig('RQ_SPARK_CONF is no object: {"spark.NAME": "VALUE"}')
    return found
