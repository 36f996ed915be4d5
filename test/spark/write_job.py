"""A driver for tests of the sink: writes four tasks of ten messages and tells how it went.

    write_job.py PLACE URL QUEUE CASE...

`plain`; `once` and `always`: task 1 fails after it has prepared, in its first attempt or
in each; `slow`: its first attempt goes on until another has ended; `twice`: the commit is
asked for twice; `before` and `during`: it waits to be killed before the commit, or when
that was asked for and not answered.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceWriter

from rq.spark import queue_door, sink
from rq.spark.session import session

TASKS, ROWS = 4, 10
STRAGGLE = 240.0  # seconds, at most


class FaultySource(DataSource):
    """The sink of RQ, with what may go wrong around it."""

    @classmethod
    def name(cls):
        return "rq_faulty"

    def writer(self, schema, overwrite):
        inner = sink.QueueWriter(sink.target(self.options))
        return FaultyWriter(inner, self.options["case"], self.options["place"])


class FaultyWriter(DataSourceWriter):
    def __init__(self, inner, case, place):
        self.inner, self.case, self.place = inner, case, place

    def write(self, iterator):
        message = self.inner.write(iterator)
        task = TaskContext.get()
        if task.partitionId() == 1 and (
            self.case == "always" or (self.case == "once" and task.attemptNumber() == 0)
        ):
            raise RuntimeError("this attempt fails after it has prepared")
        if task.partitionId() == 1 and self.case == "slow":
            self.straggle(task.attemptNumber())
        return message

    def commit(self, messages):
        if self.case == "before":
            self.wait()
        if self.case == "during":
            self.asked = ask_only(self.inner._target, messages)  # until it is killed
            self.wait()
        self.inner.commit(messages)
        if self.case == "twice":
            self.inner.commit(messages)

    def abort(self, messages):
        self.inner.abort(messages)

    def straggle(self, attempt):
        """Tell that an attempt has prepared; the first one then is behind the others."""
        (Path(self.place) / f"slow-{attempt}").touch()
        end = time.monotonic() + STRAGGLE
        while attempt == 0 and time.monotonic() < end:
            time.sleep(0.1)

    def wait(self):
        (Path(self.place) / f"{self.case}.there").touch()
        signal.pause()


def ask_only(target, messages):
    """Ask for the commit and do not listen to the answer; return what was asked by.

    As of any client without a login, the web knew before who asks: it does not do what
    somebody asked for who has hung up before they were known.
    """
    ids = [msg_id for one in messages for msg_id in one.ids]
    way = queue_door._Http(target)
    way.show(messages[0].txn)
    api = way._line
    path = f"{api._place}/{messages[0].txn}/commit"
    body = json.dumps({"ids": ids}).encode()
    api._line.begin("POST", path, body, {"Content-Type": "application/json"})
    return way


def main(place, url, queue, *cases):
    spark = session("write-job")
    spark.dataSource.register(FaultySource)
    rows = spark.range(0, TASKS * ROWS, 1, TASKS)
    rows = rows.selectExpr("'' AS param1", "cast(id AS string) AS param2")
    for case in cases:
        asked = {"queue": f"{queue}-{case}", "url": url, "case": case, "place": place}
        try:
            rows.write.format("rq_faulty").mode("append").options(**asked).save()
            said = "ok"
        except PySparkException:
            said = "failed"
        Path(place, f"{case}.said").write_text(said)


if __name__ == "__main__":
    main(*sys.argv[1:])
