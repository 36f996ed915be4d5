"""Jobs: lines on four engines, batches on a Spark that is warm, messages written by Spark.

.venv/bin/python test/bench/spark_jobs.py lines [LINES]     (12,000,000)
.venv/bin/python test/bench/spark_jobs.py warm [BATCHES]    (10)
.venv/bin/python test/bench/spark_jobs.py written [ROWS] [OF A WRITE]    (1,000,000; all)

Goals on two cores: a small batch on a warm Spark 2 s; a million rows written in 30 s, with
at most 200 MB of the queue's owner.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
sys.path[:0] = [str(CHECKOUT), str(HERE.parent), str(HERE)]

import bench  # noqa: E402 - the path above leads to it

from rq.layout import Root  # noqa: E402
from rq.queues.feed import MOST  # noqa: E402
from rq.rpc import client  # noqa: E402
from rq.spark import parsing  # noqa: E402

HOSTS, BLOCK = 24, 5_000  # lines of a block are made once, and written again and again
SMALL = 3  # messages of a batch
LINE = (
    '10.0.{}.{} - - [{:02}/Nov/2026:{:02}:{:02}:00 +0000] "GET /{} HTTP/1.1" {} {} "-" '
    '"curl/8.1"\n'
)
JOB = """
from rq.spark import job, F
@job
def run(q):
    hits = q.parse(q.lines(), "combined")
    bad = hits.where("status >= 500").groupBy("src", F.date_trunc("hour", "time"), "url")
    q.attach(bad.count(), "bad.csv")
    q.send("box")
"""
PATTERN = parsing.FORMS["combined"]
DUCKDB = """
import duckdb, re, sys
groups = re.compile(pattern).groupindex
duckdb.sql("SET threads = 2")
plain = re.sub(r"\\(\\?P<\\w+>", "(", pattern)
names = ", ".join(f"'{name}'" for name in groups)
print(duckdb.sql(f'''
    WITH lines AS (SELECT filename, regexp_extract(line, $1, [{names}]) AS hit
                   FROM read_csv($2, columns = {{'line': 'VARCHAR'}}, delim = chr(1),
                                 quote = '', escape = '', header = false,
                                 auto_detect = false, filename = true))
    SELECT sum(n)::BIGINT FROM (
        SELECT count(*) AS n FROM lines WHERE try_cast(hit.status AS INT) >= 500
        GROUP BY filename, date_trunc('hour', try_strptime(hit.time, '%d/%b/%Y:%H:%M:%S %z')),
                 hit.url)''', params=[plain, f"{logs}/*/*.gz"]).fetchall()[0][0])
"""
SPARK = """
import re
from rq.spark.session import close, session
from pyspark.sql import functions as F
groups = re.compile(pattern).groupindex
plain = re.sub(r"\\(\\?P<\\w+>", "(", pattern)
spark = session("plain", master="local[2]")
lines = spark.read.text(f"{logs}/*/*.gz").withColumn("src", F.input_file_name())
at = lambda name: F.regexp_extract("value", plain, groups[name])
time = F.to_timestamp(at("time"), "dd/MMM/yyyy:HH:mm:ss Z")
bad = lines.where(at("status").try_cast("int") >= 500)
rows = bad.groupBy("src", F.date_trunc("hour", time), at("url")).count().collect()
print(sum(row["count"] for row in rows))
close(spark)
"""


def main() -> None:
    parts = {"lines": lines, "warm": warm, "written": written}
    words = sys.argv[1:]
    if not words or words[0] not in parts:
        raise SystemExit(__doc__)
    place = Path(
        tempfile.mkdtemp(prefix="rq-bench-", dir=os.environ.get("RQ_BENCH_DIR"))
    )
    print(
        f"{os.cpu_count()} cores, {bench.file_system(place)}, load {os.getloadavg()[0]:.1f}"
    )
    try:
        parts[words[0]](place, *map(int, words[1:]))
    finally:
        shutil.rmtree(place, ignore_errors=True)


# ---- the same count on four engines


def lines(place: Path, number: int = 12_000_000) -> None:
    """Count errors in the logs of some hosts, each time by a process of its own."""
    logs = place / "logs"
    size = make_logs(logs, number)
    print(f"{number:,} lines, {size / 1e6:,.0f} MB before gzip, of {HOSTS} hosts")
    (place / "job").write_text(JOB)
    head = f"pattern, logs = {PATTERN!r}, {str(logs)!r}\n"
    tried = [
        sys.executable,
        "-m",
        "rq.cli",
        "spark",
        "try",
        "job",
        "--messages",
        "logs",
    ]
    ways = {
        "RQ on DuckDB": (tried, {"RQ_SPARK_ENGINE": "duckdb"}),
        "DuckDB alone": ([sys.executable, "-c", head + DUCKDB], {}),
        "plain Spark": ([sys.executable, "-c", head + SPARK], {}),
        "RQ on Spark": (tried, {"RQ_SPARK_MASTER": "local[2]"}),
    }
    totals = {name: run(name, place, *way) for name, way in ways.items()}
    assert len(set(totals.values())) == 1, totals


def make_logs(logs: Path, number: int) -> int:
    """Write gzipped logs, one for each host; return how many bytes they hold."""
    size = 0
    for host in range(HOSTS):
        block = "".join(some_lines(host)).encode()
        directory = logs / f"host{host:02}"
        directory.mkdir(parents=True)
        with gzip.open(directory / "access.log.gz", "wb", compresslevel=1) as file:
            for _ in range(max(1, number // HOSTS // BLOCK)):
                size += file.write(block)
    return size


def some_lines(host: int) -> Iterator[str]:
    for n in range(BLOCK):
        status = 503 if n % 50 == 0 else 200
        moment = (1 + n % 20, n % 24, n % 60)
        yield LINE.format(host, n % 250, *moment, f"p/{n % 40}", status, n * 7)


def run(name: str, place: Path, words: list[str], more: dict[str, str]) -> int:
    """Run a way; print what it cost; return how many errors it has counted."""
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "RQ_ROOT": str(place / "root")}
    (place / "root").mkdir(exist_ok=True)
    before, began = used(), time.perf_counter()
    done = subprocess.run(
        words,
        cwd=place,
        env={**env, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    took, spent = time.perf_counter() - began, used() - before
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
    print(f"{name}: {took:.1f} s, {spent:.1f} s of processor time", flush=True)
    if "spark" not in words:
        return int(done.stdout.split()[-1])
    rows = (place / "rq-try/results/bad.csv").read_text().splitlines()[1:]
    shutil.rmtree(place / "rq-try")
    return sum(int(row.rpartition(",")[2].strip('"')) for row in rows)


def used() -> float:
    """Return the processor time of what this process has waited for, in seconds."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


# ---- small batches on a Spark that is warm


def warm(place: Path, batches: int = 10) -> None:
    """Send small batches, one after the other; tell how long each ran."""
    from harness.queues import running_queue
    from harness.spark_jobs import HEAD, TAKE, prepared, tools

    env = {"PATH": f"{tools(place)}:{os.environ['PATH']}"}
    settings = {"exec_prefix": "", "env_vars": env, "num_workers": 1}
    settings |= {"worker": "persistent", "batch": {"max": SMALL, "wait": 60}}
    settings["spark"] = {"master": "local[2]"}
    log = "".join(some_lines(1)).encode()
    body = JOB.replace("from rq.spark import job, F\n", "")
    with (
        running_queue(place, TAKE, "box"),
        running_queue(place, HEAD + textwrap.dedent(body), "warm", **settings) as queue,
    ):
        for number in range(batches):
            ids = [prepared(queue, {"log": log}) for _ in range(SMALL)]
            for msg_id in ids:
                ended = queue.ended(msg_id, seconds=600)
                assert ended["status"].startswith("done"), ended
            result = queue.get(ids[0])["result"]
            figures = json.loads(result["result"])
            kind = "warm" if number else "first, with the start of Spark"
            ran, spark = result["run_us"] / 1e6, figures["spark_us"] / 1e6
            print(
                f"batch {number + 1}: {ran:.2f} s, of it Spark {spark:.2f} s ({kind})"
            )


# ---- messages written by Spark


def written(place: Path, rows: int = 1_000_000, chunk: int = 0) -> None:
    """Write a message for each row, all in one go or so many."""
    chunk = chunk or rows
    from rq.spark.session import close, session

    root = bench.make_root(place, paused=True)
    os.environ["RQ_ROOT"] = str(root.path)
    with bench.process(root, "q") as owner:
        spark = session("rq-bench", master="local[2]")
        write(spark, root, -10, 0)  # the first starts Python's workers
        before, began = costs(owner.pid), time.perf_counter()
        for first in range(0, rows, chunk):
            write(spark, root, first, min(rows, first + chunk))
        took, after = time.perf_counter() - began, costs(owner.pid)
        print(f"{rows:,} rows written in {took:.1f} s: {rows / took:,.0f}/s")
        for name, seconds in after.items():
            spent = seconds - before[name]
            print(f"{name}: {spent:.1f} s, {spent / rows * 1e6:.0f} µs a row")
        close(spark)
        made = rows - settled(root, rows + 10)
        spent = costs(owner.pid)["owner"] - before["owner"]
        print(f"owner, with the folders of {made:,} messages: {spent:.1f} s")
        print(f"the owner had {peak(owner.pid):,.0f} MB at most")


def write(spark, root: Root, first: int, end: int) -> None:  # type: ignore[no-untyped-def]
    table = spark.range(first, end).selectExpr("cast(id AS string) AS param1")
    options = {"root": str(root.path), "queue": "q", "key": f"chunk-{first}"}
    table.write.format("rq").mode("append").options(**options).save()


def costs(owner: int) -> dict[str, float]:
    """Return the processor time, in seconds, of the owner, of Java, and of all Python
    that works for it."""
    import psutil

    found = {"owner": 0.0, "java": 0.0, "python of Spark": 0.0}
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            kind = "java" if process.name() == "java" else "python of Spark"
            kind = "owner" if process.pid == owner else kind
            found[kind] += sum(process.cpu_times()[:4])
    return found


def settled(root: Root, rows: int) -> int:
    """Wait until all rows are in que, and nothing more is made of them; return how many
    are still lines."""
    socket = root.queue("q").socket
    while True:
        detail: Any = client.ask(socket, "detail")[1]
        lines, whole = detail["rows"], detail["counts"]["que"] == rows
        if whole and not detail["lag"] and (not lines or rows - lines >= MOST):
            return int(lines)
        time.sleep(0.5)


def peak(pid: int) -> float:
    """Return the most memory that a process has had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) / 1000


if __name__ == "__main__":
    main()
