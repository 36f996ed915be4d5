"""A disk that is full at a step of a batch: when there is room again, its rows are there once."""

from __future__ import annotations

import contextlib
import errno
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from harness import delta_jobs
from harness.delta_jobs import place, rows
from harness.delta_queue import start
from harness.processes import only_root
from harness.small_disk import small_disk

from rq import config, tables
from rq.errors import RQError
from rq.spark import day_files, delta, sending, staging, table_care, writes

pytestmark = only_root
ROWS = "SELECT n, 'a' || n AS v FROM range(100) AS t(n)"


@pytest.fixture
def full_tables(tmp_path, monkeypatch):
    """Give tables on DuckDB whose root has a disk of 4 MiB."""
    with small_disk(tmp_path / "root", "4m", part="spark", mode="700"):
        yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


def fill(root):
    """Leave no room on the disk of a root."""
    with (root / "filler").open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)


def added(q):
    q.table(q.spark.sql(ROWS), "flights")


def merged(q):
    q.table(q.spark.sql(ROWS), "flights", mode="merge", key="n")


def promised(q):
    q.contract("flights", {"n": {"least": 50}})
    q.table(q.spark.sql(ROWS), "flights", evolve="add")


STEPS = {
    "begin": (writes.Writes, "_begin"),
    "files": (staging._Files, "end"),
    "note": (sending.Sender, "prepare"),
    "decision": (writes.Writes, "decide"),
    "names": (writes, "_let_be_seen"),
    "commit": (delta, "_committed"),
    "sync": (delta, "_sync"),
    "end": (day_files, "note"),
}
SURE = {"begin", "files", "note", "decision", "commit", "end"}  # that need some room


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "job",
    [added, *(pytest.param(job, marks=pytest.mark.slow) for job in (merged, promised))],
)
def test_rows_are_there_once_when_there_is_room_again(
    full_tables, tmp_path, monkeypatch, job, step, is_there
):
    root = tmp_path / "root"
    if is_there:
        start(full_tables, root, job, "m0")
    where, name = STEPS[step]
    does, passed = getattr(where, name), []

    def full(*of, **how):
        if not passed:
            passed.append(step)
            fill(root)
        return does(*of, **how)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(where, name, full)
        failed = None
        try:
            start(full_tables, root, job)
        except (OSError, RQError) as error:
            failed = error
    assert passed == [step]
    assert (failed is not None) or step not in SURE
    if failed is not None:
        assert "No space left" in str(failed) or failed.errno == errno.ENOSPC
    with contextlib.suppress(OSError, RQError):  # it comes again too early
        start(full_tables, root, job)
    (root / "filler").unlink()
    for _ in range(2):
        start(full_tables, root, job)
    once = list(range(50, 100)) if job is promised else list(range(100))
    twice = is_there and job is not merged
    assert rows() == sorted(once * (1 + twice), key=str)
    if job is promised:
        beside = DeltaTable(place() + "__rejected").to_pyarrow_table().to_pylist()
        found = [json.loads(row["row"])["n"] for row in beside]
        assert sorted(found) == sorted([*range(50)] * (1 + twice))
    check_left(root)


def check_left(root):
    """Nothing waits, and the log has no file that is not whole."""
    for path in writes.above("logs").iterdir():
        assert path.name == "lock" or (path / "done").is_file()
    for path in Path(place(), "_delta_log").glob("*.json"):
        for line in path.read_text().splitlines():
            assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("care", ["optimize", "vacuum"])
def test_care_of_a_table_on_a_full_disk_leaves_it_as_it_was(
    full_tables, tmp_path, care
):
    root = tmp_path / "root"
    for number in range(3):
        start(full_tables, root, added, f"m{number}")
    fill(root)
    of, name = config.find_root(None), tables.name("logs/flights")
    with contextlib.suppress(OSError, RQError):
        if care == "optimize":
            table_care.optimize(of, name)
        else:
            table_care.vacuum(of, name, 7 * 86400.0, dry=False)
    (root / "filler").unlink()
    assert rows() == sorted([*range(100)] * 3, key=str)
