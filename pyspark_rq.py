"""Lets Spark find `format("rq")` by itself: it looks for modules called pyspark_*."""

from rq.spark.messages_source import RqSource as DefaultSource

__all__ = ["DefaultSource"]
