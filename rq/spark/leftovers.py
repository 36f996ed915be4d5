"""What a message may leave in a Spark that stays, taken away before the next one.

Settings, views and functions of a session go with it. What all sessions share does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_GLOBAL, _DEFAULT = "global_temp", "default"


def remove(session: SparkSession) -> None:
    """Take away what messages have left: jobs at work, what is cached, views and tables
    that every session sees, what a thread says of its jobs."""
    context = session.sparkContext
    context.cancelAllJobs()
    session.catalog.clearCache()
    for rdd in list(context._jsc.getPersistentRDDs().values()):
        rdd.unpersist(False)
    _remove_tables(session)
    properties = context._jvm.java.util.Properties()
    context._jsc.sc().setLocalProperties(properties)


def end_streams(session: SparkSession) -> None:
    """Stop the streams of the session of a message."""
    for query in session.streams.active:
        query.stop()


def added(context: SparkContext) -> frozenset[str]:
    """Return what was added for all tasks, for good: Spark forgets none of it."""
    return frozenset((*context.listFiles, *context.listArchives))


def _remove_tables(session: SparkSession) -> None:
    for view in session.sql(f"SHOW VIEWS IN {_GLOBAL}").collect():
        if view["namespace"] == _GLOBAL:
            session.catalog.dropGlobalTempView(view["viewName"])
    for row in session.sql("SHOW DATABASES").collect():
        if row["namespace"] not in (_DEFAULT, _GLOBAL):
            session.sql(f"DROP DATABASE {_quoted(row['namespace'])} CASCADE")
    # Views first: they are listed as tables, too.
    for kind, name in (("VIEW", "viewName"), ("TABLE", "tableName")):
        for row in session.sql(f"SHOW {kind}S IN {_DEFAULT}").collect():
            if row["namespace"] == _DEFAULT:
                session.sql(f"DROP {kind} {_DEFAULT}.{_quoted(row[name])}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
