"""Rows a second out of message folders, by Spark and by plain Python beside it.

    python test/bench/spark_read.py [FOLDERS] [--dir DIR]

Needs pyspark, pyarrow, pandas and Java (`rq up --spark`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TEST = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TEST.parent), str(TEST)]

from harness.message_folders import make_done, make_queue, plain_read  # noqa: E402

from rq.layout import Root  # noqa: E402

MINUTES = 300  # the folders lie in as many directories


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="?", type=int, default=30_000)
    parser.add_argument("--dir", help="where the folders are made")
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="rq-read-", dir=asked.dir))
    try:
        measure(Root(place), asked.folders)
    finally:
        shutil.rmtree(place)


def measure(root: Root, number: int) -> None:
    began = time.perf_counter()
    make_queue(root, "q")
    make_done(root, "q", number, MINUTES)
    print(f"{number} folders made in {time.perf_counter() - began:.1f} s")
    for _ in range(2):
        timed("plain Python, msg and status", number, lambda: plain(root, number))
    os.environ["RQ_ROOT"] = str(root.path)
    from rq.spark.session import close, session

    spark = session("bench", master="local[2]")
    try:
        read(spark, root, number)
    finally:
        close(spark)


def read(spark, root: Root, number: int) -> None:
    def frame(**options: str):
        return spark.read.format("rq").options(root=str(root.path), **options).load()

    def summed(**options: str) -> None:
        rows = frame(**options).selectExpr("count(*)", "sum(run_us)", "max(param1)")
        assert rows.collect()[0][0] == number

    for one in ("first", "second", "third"):
        timed(f'format("rq"), {one} run', number, summed)
    timed('format("rq"), msg only', number, lambda: summed(status="false"))
    ten = "date = '2026-01-02' and created < '2026-01-02 03:10:00'"
    timed("ten minutes of it", number, lambda: frame().where(ten).count())


def plain(root: Root, number: int) -> None:
    assert len(plain_read(root.path, "q")) == number


def timed(what: str, number: int, act: Callable[[], object]) -> None:
    began = time.perf_counter()
    act()
    seconds = time.perf_counter() - began
    print(f"{what:32} {number / seconds:10,.0f} rows/s  {seconds:6.2f} s")


if __name__ == "__main__":
    main()
