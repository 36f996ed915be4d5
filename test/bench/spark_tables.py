"""Delta tables by `q.table` beside plain Spark and plain DuckDB: a year written, a day of it
replaced, rows merged on a key, small files joined.

.venv/bin/python test/bench/spark_tables.py [ROWS] [FILES]

Plain Spark and DuckDB write directories of Parquet: what they leave after a kill, or show to
who reads meanwhile, is half of it. Rows are merged as jobs do it, by delta-rs alone, and by DuckDB
into a table of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE)]

from harness import delta_jobs, small_files  # noqa: E402 - the path above leads there

from rq import tables  # noqa: E402
from rq.layout import Root  # noqa: E402
from rq.spark import duck, functions, table_care, writes  # noqa: E402
from rq.spark.delta_goals import APPEND, REPLACE, Goal  # noqa: E402
from rq.spark.duck_tables import DuckTables  # noqa: E402
from rq.spark.session import session  # noqa: E402
from rq.spark.spark_tables import SparkTables  # noqa: E402
from rq.tables import Name  # noqa: E402

DAYS, DAY, MERGED = 365, "2026-03-01", 10_000
COLUMNS = """
SELECT id, CAST(concat('host-', id % 50) AS STRING) AS host, id % 9001 AS bytes,
  CAST(concat('/articles/', id % 977) AS STRING) AS path,
  {date} AS day FROM {source}
"""
DUCK = COLUMNS.format(
    date="CAST(DATE '2026-01-01' + CAST(id % 365 AS INT) AS DATE)",
    source="(SELECT range AS id FROM range({rows}))",
).replace("STRING", "VARCHAR")
SPARK = COLUMNS.format(
    date="date_add(DATE '2026-01-01', CAST(id % 365 AS INT))", source="range({rows})"
)
ONE = "SELECT * FROM ({all}) WHERE day = DATE '{day}'"


class Figures:
    """Seconds, by what was done and by whom."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, float]] = {}

    def take(self, what: str, who: str, act: Callable[[], Any]) -> None:
        begun = time.perf_counter()
        act()
        self._rows.setdefault(what, {})[who] = time.perf_counter() - begun

    def print(self) -> None:
        names = list(dict.fromkeys(who for row in self._rows.values() for who in row))
        print(f"{'seconds':28}" + "".join(f"{name:>16}" for name in names))
        for what, row in self._rows.items():
            cells = (f"{row[n]:.2f}" if n in row else "-" for n in names)
            print(f"{what:28}" + "".join(f"{cell:>16}" for cell in cells))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000
    print(f"{rows:,} rows in {DAYS} days, load {os.getloadavg()[0]:.1f}")
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="rq-bench-tables-") as scratch:
        os.environ["RQ_ROOT"] = scratch
        os.chdir(scratch)
        root = Root(Path(scratch))
        on_duckdb(root, figures, rows)
        merged(figures, rows)
        on_spark(root, figures, rows)
        joined(root, figures, files)
    print(f"load {os.getloadavg()[0]:.1f}")
    figures.print()


def on_duckdb(root: Root, figures: Figures, rows: int) -> None:
    own = DuckTables(duck.session(duck.Limits("1GB", 2), [Path.cwd()]), 2)
    every, plain = DUCK.format(rows=rows), root.path / "plain-duckdb"
    day = ONE.format(all=every, day=DAY)
    conn = own.session.conn

    def copy(
        query: str, to: str, how: str = "FORMAT parquet, COMPRESSION zstd"
    ) -> None:
        conn.execute(f"COPY ({query}) TO '{to}' ({how})")

    parted = "FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day)"
    compared(figures, own, "duckdb", every, day)
    figures.take("a year written", "DuckDB", lambda: copy(every, str(plain), parted))
    name = str(plain / f"day={DAY}" / "data_0.parquet")
    figures.take("a day replaced", "DuckDB", lambda: copy(day, name))
    own.close()


def on_spark(root: Root, figures: Figures, rows: int) -> None:
    spark = session("rq-bench", master="local[2]")
    own, plain = SparkTables(spark), str(root.path / "plain-spark")
    every = SPARK.format(rows=rows)
    day = ONE.format(all=every, day=DAY)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")

    def write(query: str) -> None:
        table = spark.sql(query).repartition("day")
        table.write.partitionBy("day").parquet(plain, mode="overwrite")

    spark.sql(day).collect()  # it is warm
    compared(figures, own, "spark", every, day)
    figures.take("a year written", "Spark", lambda: write(every))
    figures.take("a day replaced", "Spark", lambda: write(day))
    spark.stop()


def compared(figures: Figures, own: Any, engine: str, every: str, day: str) -> None:
    who = f"RQ on {engine}"
    figures.take("a year written", who, lambda: add(own, engine, every, APPEND))
    figures.take("a day replaced", who, lambda: add(own, engine, day, REPLACE))


def add(own: Any, engine: str, query: str, mode: str) -> None:
    """Add rows as a job does, with its decision and its commit."""
    added = writes.Writes("bench", mode)
    where = str(writes.tables("bench") / engine)
    goal = Goal(name=engine, where=where, by=("day",), mode=mode)
    rows = own.session.sql(query)
    added.add_to(goal, lambda stage: own.write(rows, stage, added.listed))
    added.decide({"queue": "bench", "batch": mode, "messages": 1, "ids": []})
    added.publish()
    added.close()


def merged(figures: Figures, rows: int) -> None:
    """Merge rows on a key, half of which are new: as a job does, by delta-rs, and into a
    table of DuckDB's own."""
    import deltalake
    import duckdb

    columns = "range AS id, concat('host-', range % 50) AS host, range % 9001 AS bytes"
    kept = f"SELECT {columns} FROM range({rows})"
    new = f"SELECT {columns} FROM range({rows - MERGED // 2}, {rows + MERGED // 2})"
    what = f"{MERGED:,} of {rows:,} merged"
    own = DuckTables(duck.session(duck.Limits("1GB", 2), [Path.cwd()]), 2)
    functions.F.use(functions.DUCKDB)

    def add(query: str, **how: str) -> None:
        delta_jobs.call(own, lambda q: q.table(q.spark.sql(query), "merged", **how))

    add(kept)
    how = {"mode": "merge", "key": "id"}
    figures.take(what, "RQ on duckdb", lambda: add(new, **how))
    functions.F.use(functions.SPARK)
    own.close()
    plain = duckdb.connect("merged.duckdb", config={"threads": 2})
    deltalake.write_deltalake("merged", plain.sql(kept).to_arrow_table())

    def by_delta() -> None:
        more = plain.sql(new).to_arrow_table()
        merging = deltalake.DeltaTable("merged").merge(more, "t.id = s.id", "s", "t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    figures.take(what, "delta-rs", by_delta)
    plain.execute(f"CREATE TABLE merged AS {kept}; CHECKPOINT")
    matched = "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
    merge = f"MERGE INTO merged USING ({new}) USING (id) {matched}; CHECKPOINT"
    figures.take(what, "DuckDB", lambda: plain.execute(merge))
    plain.close()


def joined(root: Root, figures: Figures, files: int) -> None:
    """Join small files of a table, and of a directory."""
    import duckdb

    place = tables.place(root, Name("bench", "small"))
    small_files.write(place, files, max(files // 50, 1))
    what, every = f"{files:,} files joined", str(place / "*.parquet")
    query = f"COPY (FROM read_parquet('{every}')) TO 'joined' (FORMAT parquet)"
    figures.take(what, "DuckDB", lambda: duckdb.connect().execute(query))
    spark = session("rq-bench", master="local[2]")
    figures.take(
        what,
        "Spark",
        lambda: spark.read.parquet(every).coalesce(1).write.parquet("joined-spark"),
    )
    spark.stop()
    name = Name("bench", "small")
    figures.take(what, "RQ on duckdb", lambda: table_care.optimize(root, name))


if __name__ == "__main__":
    main()
