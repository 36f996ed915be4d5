"""`F`: functions of columns, those of the engine that a job runs on."""

from __future__ import annotations

import importlib
import os
import re
from typing import Any

from rq.errors import BadInput

SPARK, DUCKDB = "spark", "duckdb"
_MODULES = {
    SPARK: "pyspark.sql.functions",
    DUCKDB: "duckdb.experimental.spark.sql.functions",
}


class Functions:
    """Looks a function up when it is called for: a script imports `F` before its job has
    said on what it runs."""

    def __init__(self) -> None:
        self.engine = SPARK

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(importlib.import_module(_MODULES[self.engine]), name)
        except AttributeError:
            if self.engine == DUCKDB:
                raise BadInput(f"F.{name}: {INSTEAD}") from None
            raise

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Let a task of Spark have the module itself."""
        return importlib.import_module, (_MODULES[self.engine],)

    def use(self, engine: str) -> None:
        """Take functions of an engine from now on."""
        self.engine = engine


INSTEAD = (
    "DuckDB has none; say it another way, such as in SQL (q.spark.sql), or let the "
    'queue\'s config take Spark: "spark": {"engine": "spark"}'
)


F = Functions()
# What begins a pattern in a path, to Spark's readers.
_PATTERN = re.compile(r"[\\{}\[\]*?]")


def literal(path: str | os.PathLike[str]) -> str:
    """Return a path of a file or directory that is there as a reader of the engine takes
    it for this one: names of attachments may hold what Spark would take for a pattern.
    DuckDB looks for the file of that very name first.

    >>> literal("/a/log [1].gz")
    '/a/log \\\\[1\\\\].gz'
    """
    text = os.fspath(path)
    return text if F.engine == DUCKDB else _PATTERN.sub(r"\\\g<0>", text)
