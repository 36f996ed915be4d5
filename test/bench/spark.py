"""A million events into gold: cold, 5,000 more warm; DuckDB and the page beside it.

.venv/bin/python test/bench/spark.py [EVENTS] [DAYS]

Goals on two cores: cold 120 s (the start of Spark included), 5,000 more 15 s, also on a
day of six million (6000000 1), the page from JSON 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE)]

import bench  # noqa: E402 - the path above leads to them
import psutil  # noqa: E402
from harness.journal_files import DAY, START, JournalFiles, life  # noqa: E402

from rq import config, published  # noqa: E402
from rq.config import files  # noqa: E402
from rq.layout import Root  # noqa: E402

QUEUES, DAYS = 8, 3
NIGHT = DAY * 11 // 48  # nothing happens from 18:30 of the last day
SEGMENT = 300_000  # events, about 64 MiB
MORE = 5_000
PAGES = 20


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    days = int(sys.argv[2]) if len(sys.argv) > 2 else DAYS
    with tempfile.TemporaryDirectory(prefix="rq-bench-spark-") as scratch:
        root = Root(Path(scratch))
        os.environ["RQ_ROOT"] = scratch
        print(f"{os.cpu_count()} cores, {bench.file_system(root.path)}")
        journals = [
            JournalFiles(root, f"queue{number}", f"{number:08x}")
            for number in range(QUEUES)
        ]
        made, took = timed(lambda: fill(journals, events, days))
        size = sum(path.stat().st_size for path in root.queues.rglob("*.jsonl"))
        print(
            f"{made:,} events in {size / 1e6:,.0f} MB of segments, made in {took:.0f} s"
        )
        spark_part(root, journals, days)
        duckdb_part(root)
        page_part(root)


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    found = act()
    return found, time.perf_counter() - begun


def fill(journals: list[JournalFiles], events: int, days: int) -> int:
    """Seal about that many events, in the order of time; return how many."""
    rnd = random.Random(1)
    each = events // len(journals)
    step = (days * DAY - NIGHT) * 3 // each
    for journal in journals:
        for first in range(0, each, SEGMENT):
            journal.seal(some(rnd, first // 3, min(SEGMENT, each - first) // 3, step))
    return sum(journal.last for journal in journals)


def some(rnd: random.Random, first: int, number: int, step: int) -> Any:
    """Give the events of so many messages, `step` µs between them."""
    for index in range(first, first + number):
        end, cause = ("fail", "exit") if rnd.random() < 0.03 else ("finish", "done")
        at = START + index * step
        run_us = int(rnd.lognormvariate(11, 1.5))
        wait_us = int(rnd.lognormvariate(8, 2))
        msg = f"20270115.0000.00.{index % 1000:03d}.{index}"
        yield from life(msg, at, end=end, cause=cause, run_us=run_us, wait_us=wait_us)


def spark_part(root: Root, journals: list[JournalFiles], days: int) -> None:
    from rq.spark import rounds
    from rq.spark.session import session

    spark, started = timed(lambda: session("rq-bench", master="local[2]"))
    done, took = timed(lambda: rounds.run_round(spark, root))
    whole = started + took
    print(f"cold: {whole:.1f} s, of it {started:.1f} s to start Spark; ", end="")
    print(f"{done.events:,} events in {done.batches} batches, {len(done.days)} days")
    print(f"at most {memory()}")
    for number in range(2):
        for journal in journals:
            first = journal.last // 3
            share = MORE // 3 // len(journals)
            step = (days * DAY - NIGHT) // first
            journal.seal(some(random.Random(number), first, share, step))
        before = processor_time()
        done, took = timed(lambda: rounds.run_round(spark, root))
        used = processor_time() - before
        print(f"warm: {took:.1f} s for {done.events:,} more events; ", end="")
        print(f"{used:.1f} s of processor time")
    done, took = timed(
        lambda: rounds.run_round(spark, root, rounds.Settings(rebuild=True))
    )
    print(f"built anew: {took:.1f} s, {len(done.days)} days; at most {memory()}")
    spark.stop()


def family() -> list[psutil.Process]:
    """Return this process, its Java, and Java's workers."""
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def processor_time() -> float:
    """Return what those have used that live, and the ended children of those."""
    found = 0.0
    for process in family():
        with contextlib.suppress(psutil.Error):
            found += sum(process.cpu_times()[:4])
    return found


def memory() -> str:
    """Return the most memory that Python and Java have had by now."""
    peaks = {"python": 0, "java": 0}
    for process in family():
        with contextlib.suppress(psutil.Error, OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            if "VmHWM:" not in status:
                continue  # it has ended by now
            peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
            name = "java" if process.name() == "java" else "python"
            peaks[name] = max(peaks[name], peak)
    return ", ".join(f"{peak:,} MB of {name}" for name, peak in peaks.items())


AGGREGATE = """
SELECT date, queue, extract(hour FROM make_timestamp(ts)) AS hour,
       count(*) FILTER (ev = 'finish') AS done, count(*) FILTER (ev = 'fail') AS err,
       quantile_cont(wait_us, [0.5, 0.95, 0.99]) FILTER (run_us IS NOT NULL) AS wait,
       quantile_cont(run_us, [0.5, 0.95, 0.99]) FILTER (run_us IS NOT NULL) AS run
FROM read_parquet(getvariable('files'), hive_partitioning = true)
GROUP BY GROUPING SETS ((date, queue, hour), (date, hour), (date, queue), (date))
"""


def duckdb_part(root: Root) -> None:
    """Compute the same figures from the same Parquet without Spark."""
    import duckdb

    from rq.spark import bronze

    place = bronze.place(root)
    current = place.current()
    source = place.bronze(current.number)
    files = [
        str(path)
        for date in bronze.dates(source)
        for one in bronze.batches(source, date, current)
        for path in one.path.glob("*.parquet")
    ]
    with duckdb.connect() as line:
        line.execute("SET threads = 2")
        line.execute("SET VARIABLE files = $1", [files])
        for name in ("first", "second"):
            rows, took = timed(lambda: line.execute(AGGREGATE).fetchall())
            print(f"DuckDB, the same aggregate, {name}: {took:.2f} s, {len(rows)} rows")
    shown = published.Published(published.place(root))
    whole = {day["date"]: day for day in shown.days(shown.index()["days"])}
    for date, queue, hour, done, err, _, _ in rows:
        part = next(
            one
            for one in whole[str(date)]["parts"]
            if (one["queue"], one["hour"]) == (queue, hour)
        )
        assert (part["done"], part["err"]) == (done, err), (date, queue, hour)


def page_part(root: Root) -> None:
    """Make the page of all queues from the published files."""
    from rq.web import site as sites
    from rq.web.pages import history, templating

    files.write_state(root.path / "config.json", {"host": "127.0.0.1", "port": 1})
    settings = config.root_config({"host": "127.0.0.1", "port": 1}, root.path)
    site = sites.make(root, settings, b"secret")
    templates = templating.environment(site)
    shown = published.Published(published.place(root))
    # What was published is of the year 2027: the page is asked for as of then.
    index = shown.index()
    last = time.mktime(time.strptime(f"{index['days'][-1]} UTC", "%Y-%m-%d %Z"))
    files.write_text(
        shown.place.index, published_as_of(shown.place.index, last + 86399)
    )
    for kind in ("first", *["again"] * PAGES):
        _, took = timed(lambda: page(history, templates, shown))
        if kind == "first":
            print(f"page from JSON, first: {took * 1000:.1f} ms")
    print(f"page from JSON, again: {took * 1000:.1f} ms")


def published_as_of(path: Path, moment: float) -> str:
    import json

    return json.dumps({**json.loads(path.read_text()), "as_of": moment})


def page(history: Any, templates: Any, shown: published.Published) -> str:
    from rq.web.pages.page import may

    told = history.facts(shown, None, "week")
    values = {
        "facts": told,
        "pictures": history.pictures(told),
        "queue": None,
        "ranges": history.RANGES,
        "chosen": "week",
        "here_url": "/history",
        "here": "/history",
        "places": [],
        "flashes": [],
        "may": may(None),
        "reader": None,
        "has_session": False,
        "theme": "",
        "back": "/",
        "now": time.time(),
    }
    return str(templates.get_template("history.html").render(**values))


if __name__ == "__main__":
    main()
