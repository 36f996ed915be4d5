"""A query that reads a queue under leases, for tests that kill it where they say."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql.datasource import DataSource

from rq.spark import lease_holder, lease_queue, lease_stream, messages_source

NAME = "rq_killed"
IN_SOURCE = ("claimed", "half started", "planned", "half finished")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class KilledSource(DataSource):
    """`rq`, whose process beside the driver dies at the point that `die_at` names, once:
    the file `died` says that it did."""

    @classmethod
    def name(cls):
        return NAME

    def schema(self):
        return messages_source.RqSource(self.options).schema()

    def streamReader(self, schema):  # noqa: N802
        options = dict(self.options)
        point, died = options.pop("die_at", ""), Path(options.pop("died", "/dev/null"))
        self.options = options
        if point and not died.exists():
            arm(point, died)
        return messages_source.RqSource(options).streamReader(schema)


def arm(point, died):
    """Let this process die at a point."""
    owner, name, when = {
        "claimed": (lease_holder.Claims, "write", "after"),
        "half started": (lease_queue.SocketWay, "ask", "second start"),
        "planned": (lease_stream.LeaseReader, "partitions", "before"),
        "half finished": (lease_queue.SocketWay, "ask", "second finish"),
    }[point]
    act, seen = getattr(owner, name), []

    def and_die(self, *args):
        if when in ("before", f"second {args[0]}") and (seen or when == "before"):
            died.touch()
            die()
        if when == f"second {args[0]}":
            seen.append(args)
        result = act(self, *args)
        if when == "after":
            died.touch()
            die()
        return result

    setattr(owner, name, and_die)


def start(spark, place, queue, *, die_at="", **options):
    """Start a query that takes what waits, and writes the ids of each batch into a file
    of the batch's own, once however often."""
    output = place / "output"
    output.mkdir(exist_ok=True)

    def sink(rows, number):
        ids = [row["msg_id"] for row in rows.select("msg_id").collect()]
        path = output / f"{number}"
        died = place / f"died-{die_at}"
        if die_at == "in the sink" and ids and not died.exists():
            path.write_text(json.dumps(ids[: len(ids) // 2]))
            died.touch()
            die()
        path.write_text(json.dumps(ids))
        if die_at == "behind the sink" and ids and not died.exists():
            died.touch()
            die()

    checkpoint = place / "query"
    spark.dataSource.register(KilledSource)
    about = {"root": str(queue.root.path), "queue": queue.name, "seconds": "60"}
    about["claims"] = str(checkpoint / "claims")
    if die_at in IN_SOURCE:
        about |= {"die_at": die_at, "died": str(place / f"died-{die_at}")}
    stream = spark.readStream.format(NAME).options(**about, **options).load()
    written = stream.writeStream.foreachBatch(sink)
    written = written.option("checkpointLocation", str(checkpoint))
    return written.trigger(availableNow=True).start()


if __name__ == "__main__":
    from rq.layout import Root
    from rq.spark.session import session

    class Named:
        root = Root(Path(sys.argv[2]))
        name = sys.argv[3]

    query = start(session("lease-job"), Path(sys.argv[1]), Named, die_at=sys.argv[4])
    query.awaitTermination()
