"""`F`: functions of columns, those of the engine that a job runs on."""

from __future__ import annotations

import importlib
from types import ModuleType
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
        self._engine = SPARK

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(_module(self._engine), name)
        except AttributeError:
            if self._engine == DUCKDB:
                raise BadInput(f"F.{name}: {INSTEAD}") from None
            raise

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Let a task of Spark have the module itself."""
        return importlib.import_module, (_MODULES[self._engine],)

    def use(self, engine: str) -> None:
        """Take functions of an engine from now on."""
        self._engine = engine


INSTEAD = (
    "DuckDB has none; say it another way, such as in SQL (q.spark.sql), or let the "
    'queue\'s config take Spark: "spark": {"engine": "spark"}'
)


def _module(engine: str) -> ModuleType:
    return importlib.import_module(_MODULES[engine])


F = Functions()
