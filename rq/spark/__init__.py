"""What RQ does with Spark: sources, history, jobs in one file. No daemon imports this room.

Spark lives in child processes: scripts of queues and `rq spark`. Importing the package
costs nothing; what needs pyspark is imported when it is asked for.
"""

from __future__ import annotations

import importlib

_OFFERED = {
    "job": ("rq.spark.job_file", "job"),
    "F": ("rq.spark.functions", "F"),
    "literal": ("rq.spark.functions", "literal"),
    "history": ("rq.spark.notebook", "history"),
}


def __getattr__(name: str) -> object:
    """Give `job`, `F` and `literal` to one-file jobs, `history` to notebooks, and load Spark no
    sooner."""
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _OFFERED[name]
    return getattr(importlib.import_module(module), attribute)
