"""Rows of CSV by `q.csv()`, and lines into columns, beside plain DuckDB and plain Spark.

.venv/bin/python test/bench/spark_rows.py [ROWS]

Goals on two cores: 1.3 times plain Spark, 1.1 times plain DuckDB; the best of five, in turns.
DuckDB is compared by processor time, too, which says more while others use the machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE)]

from rq.spark import duck, layouts, schemas  # noqa: E402 - the path above leads there
from rq.spark.attachments import File  # noqa: E402
from rq.spark.duck_tables import DuckTables  # noqa: E402
from rq.spark.session import session  # noqa: E402
from rq.spark.spark_tables import SparkTables  # noqa: E402

SCHEMA = "id long, name string, price double, day date, n int"
Act = Callable[[], Any]
FILES, TURNS = 4, 5
MAXIMA = ", ".join(f"max({name})" for name in ("id", "name", "price", "day", "n"))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    with tempfile.TemporaryDirectory(prefix="rq-bench-rows-") as scratch:
        os.environ["RQ_ROOT"] = scratch
        os.chdir(scratch)
        every = [made(Path(scratch), number, rows // FILES) for number in range(FILES)]
        size = sum(file.size for file in every)
        print(f"{rows:,} rows, {size / 1e6:,.0f} MB, load {os.getloadavg()[0]:.1f}")
        on_duckdb(every)
        on_spark(every)


def made(place: Path, number: int, rows: int) -> File:
    path = place / f"{number}.csv"
    with path.open("w") as file:
        file.write("id,name,price,day,n\n")
        for i in range(rows):
            file.write(f"{i},name {i % 1000},{i % 977}.25,2026-01-{i % 28 + 1:02d},7\n")
    return File("m", "s", path.name, str(path), path.stat().st_size)


def on_duckdb(every: list[File]) -> None:
    own = DuckTables(duck.session(duck.Limits("1GB", 2), [Path.cwd()]), 2)
    layout, names = layouts.csv(SCHEMA, "*", {}), [file.where for file in every]
    columns = {column.name: column.kind for column in schemas.parsed(SCHEMA)}
    plain = (
        f"SELECT {MAXIMA} FROM read_csv({names}, header = true, columns = {columns})"
    )

    def rows() -> Any:
        table, _ = own.rows(every, [], layout)
        return table.relation.aggregate(MAXIMA).fetchall()

    clocks = {"": time.perf_counter, " of processor": time.process_time}
    compared("DuckDB", rows, lambda: own.session.conn.execute(plain).fetchall(), clocks)
    own.close()


def on_spark(every: list[File]) -> None:
    spark = session("rq-bench", master="local[2]")
    own, layout = SparkTables(spark), layouts.csv(SCHEMA, "*", {})
    expressions = MAXIMA.split(", ")

    def rows() -> Any:
        table, _ = own.rows(every, [], layout)
        return table.selectExpr(*expressions).collect()

    def plain() -> Any:
        names = [file.where for file in every]
        table = spark.read.csv(names, schema=SCHEMA, header=True)
        return table.selectExpr(*expressions).collect()

    compared("Spark", rows, plain, {"": time.perf_counter})
    spark.stop()


def compared(
    engine: str, own: Act, plain: Act, clocks: Mapping[str, Callable[[], float]]
) -> None:
    turns = [(timed(own, clocks), timed(plain, clocks)) for _ in range(TURNS)]
    for number, name in enumerate(clocks):
        ours, theirs = (min(turn[who][number] for turn in turns) for who in (0, 1))
        print(
            f"{engine}: {ours:.2f} s{name}, alone {theirs:.2f} s: {ours / theirs:.2f} times"
        )


def timed(act: Act, clocks: Mapping[str, Callable[[], float]]) -> list[float]:
    begun = [clock() for clock in clocks.values()]
    act()
    ended = [clock() for clock in clocks.values()]
    return [end - begin for begin, end in zip(begun, ended, strict=True)]


if __name__ == "__main__":
    main()
