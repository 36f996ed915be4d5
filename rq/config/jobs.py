"""What the config of a queue says of where its one-file jobs run: its setting `spark`."""

from __future__ import annotations

import re
from collections.abc import Mapping

ENGINES = ("spark", "duckdb")
THREADS = 1024  # the most
_MEMORY = re.compile(r"[1-9]\d{0,6} ?[MGT]i?B", re.ASCII)


def engine(value: object) -> str:
    """Return what jobs run on; ValueError."""
    if value not in ENGINES:
        raise ValueError(f"{value!r:.60} is not one of {', '.join(ENGINES)}")
    return str(value)


def memory(value: object) -> str:
    """Return how much memory DuckDB takes; ValueError.

    >>> memory("500MB")
    '500MB'
    """
    if not (isinstance(value, str) and _MEMORY.fullmatch(value)):
        raise ValueError(f"{value!r:.60} is no amount such as 2GB or 500MB")
    return value


def conf(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of Spark; ValueError."""
    for name in settings:
        if not name.startswith("spark."):
            raise ValueError(f"{name} does not begin with spark.")
    return dict(settings)
