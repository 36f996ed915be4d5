"""DuckDB as jobs use it: in this process, within its memory, and with no way out.

It reads what its messages bring and what lies in the working directory. All else, its own
HTTP and its extensions are shut: what an address leads to is fetched by `remote` alone.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rq import config, names
from rq.errors import BadConfig
from rq.spark import failures, scratch
from rq.spark.functions import DUCKDB, INSTEAD, F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY = "1GB"
_OURS = "duckdb.experimental.spark"
_ERRORS = "_duckdb"
_CLOSED = (
    ": a query reads the attachments of its messages and the working directory, and "
    "nothing else"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the machine a job takes."""

    memory: str  # as DuckDB reads it: `2GB`
    threads: int


def limits() -> Limits:
    """Return what the config of the queue says, else a gigabyte and all cores."""
    cores = len(os.sched_getaffinity(0))
    return Limits(
        os.environ.get("RQ_SPARK_MEMORY") or _MEMORY,
        int(os.environ.get("RQ_SPARK_THREADS") or cores),
    )


def demand() -> None:
    """Raise BadConfig when DuckDB is not installed."""
    names = ("duckdb", "pyarrow")
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise BadConfig(
            f"{', '.join(missing)} not installed: run `rq up --duckdb` (about 400 MB)"
        )


def session(within: Limits, readable: Iterable[Path]) -> SparkSession:
    """Return a database of its own, in memory, that speaks as a session of Spark does;
    `readable` are the directories that it may read. BadConfig."""
    import duckdb
    from duckdb.experimental.spark.context import SparkContext
    from duckdb.experimental.spark.sql import SparkSession

    spark = SparkSession(SparkContext("rq"))
    place = scratch.enter(_scratch())
    settings: dict[str, Any] = {
        "memory_limit": within.memory,
        "threads": within.threads,
        "TimeZone": "UTC",
        "temp_directory": str(place),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # It can open nothing in a directory whose name is no text.
        "allowed_directories": list(filter(names.is_text, map(str, readable))),
        "enable_external_access": False,
        "lock_configuration": True,
    }
    for name, value in settings.items():
        try:
            spark.conn.execute(f"SET {name} = {_literal(value)}")
        except duckdb.Error as error:
            text = failures.first_line(error)
            raise BadConfig(f"DuckDB refuses {name} {value}: {text}") from None
    return spark


def close(spark: SparkSession) -> None:
    """End a database, and remove what it had no memory for."""
    spark.conn.close()
    scratch.leave(_scratch())


def _scratch() -> Path:
    return config.find_root(None).spark / "local"


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


# ---- what went wrong


def failure(error: BaseException) -> str | None:
    """Return what DuckDB lacked and what to do about it; None: the error is the job's."""
    if type(error).__name__ == "OutOfMemoryException" and is_of_duckdb(error):
        return (
            f"DuckDB ran out of memory, it had {limits().memory}: give it more, in the "
            'queue\'s config "spark": {"memory": "4GB"}'
        )
    return failures.FULL if failures.is_full(str(error)) else None


def sentence(error: BaseException) -> str | None:
    """Return what an error of DuckDB means; None: it is none."""
    if is_of_duckdb(error):
        refused = type(error).__name__ == "PermissionException"
        return failures.first_line(error) + (_CLOSED if refused else "")
    lacks = getattr(error, "obj", None)
    if isinstance(error, AttributeError) and _is_its(lacks):
        return f"{type(lacks).__name__}.{error.name}: {INSTEAD}"
    if isinstance(error, NotImplementedError) and _is_its(error):
        return f"{_function(error)}: {INSTEAD}"
    if F.engine == DUCKDB and _is_of_pyspark(error):
        return f"a function of pyspark: {INSTEAD}"
    return None


def is_of_duckdb(error: BaseException) -> bool:
    """Whether DuckDB has raised it."""
    return type(error).__module__.partition(".")[0] == _ERRORS


def _is_of_pyspark(error: BaseException) -> bool:
    """Whether the code of Spark itself has raised it, which a job has imported."""
    at, module = error.__traceback__, ""
    while at is not None:
        module, at = at.tb_frame.f_globals.get("__name__", ""), at.tb_next
    return module.startswith("pyspark.")


def _is_its(value: object) -> bool:
    return type(value).__module__.startswith(_OURS)


def _function(error: BaseException) -> str:
    """Return the function that has raised an error."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "this" if at is None else at.tb_frame.f_code.co_name
