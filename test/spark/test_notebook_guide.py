"""The page about notebooks: its cells, one after the other, beside what jobs have made."""

from __future__ import annotations

import ast
import os

import pytest
from harness.checkout import CHECKOUT
from harness.documents import GUIDE, examples_of
from harness.queues import running_queue
from harness.spark_jobs import HEAD, prepared, tools

from rq.spark import rounds

LINE = '10.0.0.{n} - - [21/Nov/2026:1{n}:00:00 +0000] "GET /a HTTP/1.1" {code} 12 "-" "c"\n'
JOB = """
@job(engine="duckdb")
def run(q):
    hits = q.parse(q.lines(), "combined")
    q.write(hits, "{hits}", by="host")
"""


def cell(text, names):
    """Run a cell; return what a notebook shows behind it."""
    tree = ast.parse(text)
    *before, last = tree.body
    if not isinstance(last, ast.Expr):
        before, last = tree.body, None
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.slow
def test_the_cells_of_the_page_show_what_there_is(spark, tmp_path, monkeypatch):
    hits = tmp_path / "hits"
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"}
    settings = {"exec_prefix": "", "env_vars": env, "spark": {"threads": 2}}
    script = HEAD + JOB.replace("{hits}", str(hits))
    with running_queue(tmp_path / "root", script, "logs", **settings) as queue:
        for n in (1, 2):
            text = LINE.format(n=n, code=199 + n) + LINE.format(n=n, code=500)
            queue.ended(prepared(queue, {"log": text.encode()}), seconds=60)
        monkeypatch.setenv("RQ_ROOT", str(queue.root.path))
        monkeypatch.setenv("HITS", str(hits))
        monkeypatch.setenv("PATH", f"{CHECKOUT / 'bin'}:{os.environ['PATH']}")
        rounds.run_round(spark, queue.root)
        names: dict[str, object] = {}
        shown = [cell(text, names) for text in examples_of("python", "cell", GUIDE)]
    tables = [table for table in shown if table is not None]
    counted, size, made, results, days = tables
    assert counted.values.tolist() == [["10.0.0.1", 2, 1], ["10.0.0.2", 2, 1]]
    assert size.to_dict() == {"10.0.0.1": 24, "10.0.0.2": 24}
    assert made["rows"].tolist() == [2, 2]
    assert made["time"].is_monotonic_increasing
    assert results["rows_in"].tolist() == [2, 2]
    assert days["done"].sum() == 2
