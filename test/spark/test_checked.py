"""What a queue's jobs expect of their data is kept, whether it holds or not."""

from __future__ import annotations

import pytest
from harness.queues import running_queue
from harness.spark_jobs import HEAD, prepared, tools

from rq.checks import Checks
from rq.words import wording

JOB = """
@job(engine="duckdb")
def run(q):
    rows = q.parse(q.lines(), r"(?P<word>[a-z]+) (?P<n>-?[0-9]+)")
    rows = rows.select("word", F.col("n").cast("int").alias("n"))
    q.expect(rows, 2)
    q.contract("words", {"n": {"least": 0}}, most_rejects=0.5)
    q.table(rows, "words")
"""
# What a message brings: how it ends, and what is kept of it.
TEXTS = {
    b"a 1\nb -2\n": ("done", [("expect", True), ("contract", True)]),
    b"a 1\n": ("err", [("expect", False)]),
    b"a 1\nb -2\nc -3\n": ("err", [("expect", True), ("contract", False)]),
}


@pytest.mark.slow
def test_what_jobs_expect_is_kept_of_batches_that_end_well_or_not(tmp_path):
    settings = {
        "exec_prefix": "",
        "env_vars": {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"},
        "spark": {"threads": 2},
    }
    with running_queue(tmp_path / "root", HEAD + JOB, "logs", **settings) as queue:
        kept, seen = Checks(queue.root, "logs"), 0
        for text, (state, wanted) in TEXTS.items():
            msg_id = prepared(queue, {"log": text})
            ended = queue.ended(msg_id, 120)
            assert ended["state"] == state
            views = kept.of_table("words", 100)
            new = views[: len(views) - seen]
            assert [(v["kind"], v["holds"]) for v in reversed(new)] == wanted
            assert {tuple(v["ids"]) for v in new} == {(msg_id,)}
            seen = len(views)
    assert new[0]["text"].startswith("words: 2 of 3 rows break the contract")
    # Nothing of the last one was written, and nothing says so.
    figures = dict(wording.figures(ended["result"]["result"]))
    assert figures["discarded"] == "words (1 row), words__rejected (2 rows)"
    assert "made" not in figures
