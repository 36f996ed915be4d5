"""Jobs that write Delta tables, called without a queue, and what independent readers see."""

from __future__ import annotations

import threading

import duckdb as db
import polars
from deltalake import DeltaTable
from pyarrow import dataset

from rq.errors import RQError
from rq.spark import duck, functions, jobs, sending, table_rights, writes
from rq.spark.duck_tables import DuckTables
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job
from rq.spark.spark_tables import SparkTables


class Desk:
    """The outlet of a job of these tests."""

    schemas = None

    def __init__(self, tables):
        self._tables = tables

    def tables(self):
        return self._tables

    def place(self, where):
        return where

    def table(self, name):
        return table_rights.place("logs", name, table_rights.WRITES)

    def table_to_read(self, name):
        return table_rights.place("logs", name, table_rights.READS)

    def failed(self, q):
        pass

    def say(self, verb, text):
        pass


def on_engine(request, tmp_path, monkeypatch):
    """Give tables on the engine that is the parameter of a fixture."""
    if request.param == "duckdb":
        yield from on_duckdb(tmp_path, monkeypatch)
        return
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    functions.F.use(functions.SPARK)
    yield SparkTables(request.getfixturevalue("spark"))


def on_duckdb(tmp_path, monkeypatch):
    """Give tables on DuckDB."""
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    functions.F.use(functions.DUCKDB)
    session = DuckTables(duck.session(duck.Limits("200MB", 2), []), 2)
    yield session
    session.close()
    functions.F.use(functions.SPARK)


def call(tables, function, publish=True, queue="logs"):
    """Call a job, and let what it has written be seen; return its `q`."""
    given = (Given("m1", "nowhere"),)
    q = jobs.call(Job(function), Batch("b1", queue, given), Desk(tables), given)
    if publish:
        publish_all(q)
    return q


def publish_all(q):
    q.writes.decide(sending.origin("logs", "b1", q.messages))
    q.writes.publish()
    q.writes.close()


def publish_at_once(late):
    """Let the work of several batches be seen, each by a thread of its own; return what
    was raised."""
    failed = []

    def publish(q):
        try:
            publish_all(q)
        except RQError as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(q,)) for q in late]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def add(tables, query, publish=True, **how):
    """Add the rows of a query to the table `flights`."""
    return call(tables, table_job(query, **how), publish)


def table_job(query, **how):
    """Return a job that adds the rows of a query to the table."""
    return lambda q: q.table(q.spark.sql(query), "flights", **how)


def place():
    return str(writes.tables("logs") / "flights")


def rows(column="n"):
    """Return what independent readers see of a column: the same."""
    table = DeltaTable(place())
    values = seen_of(table, column)
    files = table.file_uris()
    assert sum(dataset.dataset(file).count_rows() for file in files) == len(values)
    return values


def seen_of(table, column, options=None):
    """Return what independent readers see of a column of a table: the same. `options`:
    what reaches it in a store."""
    seen = sorted(table.to_pyarrow_table().column(column).to_pylist(), key=str)
    assert sorted(table.to_pandas()[column].tolist(), key=str) == seen
    frame = polars.read_delta(table.table_uri, storage_options=options)
    assert sorted(frame[column].to_list(), key=str) == seen
    name = column.replace('"', '""')
    query = f'SELECT "{name}" FROM lake'
    with db.connect() as base:
        base.register("lake", table.to_pyarrow_dataset())
        assert sorted((v for (v,) in base.sql(query).fetchall()), key=str) == seen
    return seen


def begun(duck_tables, query="SELECT 2 AS n", **how):
    """Return the work of a batch that has put its rows, and decided nothing."""
    return add(duck_tables, query, publish=False, **how)
