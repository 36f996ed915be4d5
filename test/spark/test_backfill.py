"""`rq spark backfill`: days of a real queue made again, as a person does it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import duckdb as db
import pytest
from harness.checkout import CHECKOUT
from harness.queues import running_queue
from harness.spark_jobs import HEAD, prepared, tools
from harness.waiting import wait_until

from rq.cli import backfill
from rq.days import Days
from rq.errors import BadInput

JOB = """
@job(engine="duckdb")
def run(q):
    rows = q.parse(q.lines(), r"(?P<day>\\S+) (?P<n>\\d+)")
    q.write(rows.select("day", "n", "msg_id"), "{out}", by="day")
"""
DAYS = ("2026-11-02", "2026-11-03")
SPAN = f"{DAYS[0]}..2026-11-04"


@pytest.fixture
def queue(tmp_path):
    """Give a queue whose job has written two days of two messages."""
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"}
    settings = {"exec_prefix": "", "env_vars": env, "spark": {"threads": 2}}
    script = HEAD + JOB.replace("{out}", str(tmp_path / "out"))
    with running_queue(tmp_path / "root", script, "logs", **settings) as made:
        for n in (1, 2):
            text = "".join(f"{day} {n}\n" for day in DAYS)
            made.ended(prepared(made, {"log": text.encode()}), seconds=60)
        yield made


def command(queue, *words):
    """Return a process of the command."""
    env = {**os.environ, "RQ_ROOT": str(queue.root.path), "PYTHONPATH": str(CHECKOUT)}
    line = [sys.executable, "-m", "rq.cli", "spark", "backfill", "logs", *words]
    return subprocess.Popen(
        line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def said(queue, *words, code=0):
    process = command(queue, *words)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == code, text
    return text


def states(queue):
    told = json.loads(said(queue, "--day", SPAN, "--dry-run", "--json"))
    return [view["state"] for view in told["days"]]


def change(queue, old, new):
    """Write the script again."""
    script = queue.root.path / "logs.script"
    script.write_text(script.read_text().replace(old, new))


def rows(tmp_path):
    query = f"SELECT CAST(day AS VARCHAR), CAST(n AS INT) FROM read_parquet('{tmp_path}/out/day=*/*.parquet')"
    return sorted(db.connect().execute(query).fetchall())


@pytest.mark.slow
def test_a_week_is_made_again_by_the_new_script(queue, tmp_path):
    assert states(queue) == ["done", "done", "missing"]
    assert said(queue, "--day", SPAN).endswith("0 of 3 days to make again\n")
    change(queue, '"n", "msg_id"', 'F.expr("CAST(n AS INT) * 10").alias("n")')
    assert states(queue) == ["stale", "stale", "missing"]
    text = said(queue, "--day", SPAN, "--at-once", "2")
    assert "2 of 3 days to make again" in text
    assert "2026-11-03  batch 2 of 2" in text
    assert "2026-11-02  done 2 rows of 2 messages in 2 batches" in text
    assert text.endswith("2 of 2 days were made again\n")
    assert rows(tmp_path) == [(day, n) for day in DAYS for n in (10, 20)]
    assert states(queue) == ["done", "done", "missing"]
    change(queue, "rows = ", "raise ValueError('no')\n    rows = ")
    text = said(queue, "--day", DAYS[0], code=8)
    assert "2026-11-02  failed ValueError: no" in text
    assert states(queue) == ["failed", "stale", "missing"]
    assert len(rows(tmp_path)) == 4


@pytest.mark.slow
def test_what_was_ended_goes_on_where_it_was(queue, tmp_path):
    go = tmp_path / "go"
    wait = f"import pathlib, time\\n    while q.messages[0]['n'] is None and not pathlib.Path('{go}').exists(): time.sleep(0.05)\\n    rows = "
    change(queue, "rows = ", wait.replace("\\n", "\n"))
    go.touch()
    said(queue, "--day", DAYS[0])
    go.unlink()
    process = command(queue, "--day", SPAN, "--again")
    wait_until(lambda: "running" in states(queue), 120)
    text = said(queue, "--day", DAYS[0], "--again")
    assert "0 of 1 day to make again" in text  # another process makes it
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 8
    assert re.search(
        r"ended: \d days? (is|are) left, which the same command goes on", text
    )
    assert len(rows(tmp_path)) == 4
    go.touch()
    text = said(queue, "--day", SPAN, "--again")
    assert text.endswith("2 of 2 days were made again\n")
    assert states(queue) == ["done", "done", "missing"]


@pytest.mark.slow
def test_what_is_cancelled_ends_wherever_it_was_begun(queue, tmp_path):
    go = tmp_path / "go"
    wait = f"import pathlib, time\n    while not pathlib.Path('{go}').exists(): time.sleep(0.05)\n    rows = "
    change(queue, "rows = ", wait)
    before = rows(tmp_path)
    process = command(queue, "--day", SPAN, "--again")
    wait_until(lambda: "running" in states(queue), 120)
    assert said(queue, "--cancel") == "logs: cancelled: 2026-11-02\n"
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 8
    assert text.endswith("cancelled: 0 of 2 days were made again\n")
    assert rows(tmp_path) == before
    assert states(queue) == ["stale", "stale", "missing"]
    go.touch()
    assert said(queue, "--cancel") == "logs: cancelled: no day was being made again\n"
    assert said(queue, "--day", DAYS[0]).endswith("1 of 1 day was made again\n")


@pytest.mark.slow
def test_a_day_whose_command_was_killed_is_cancelled_as_well(queue, tmp_path):
    wait = f"import pathlib, time\n    pathlib.Path('{tmp_path}/began').touch()\n    time.sleep(600)\n    rows = "
    change(queue, "rows = ", wait)
    before = rows(tmp_path)
    with command(queue, "--day", DAYS[0], "--again") as process:
        wait_until((tmp_path / "began").exists, 120)
        process.kill()
    noted = Days(queue.root, "logs")
    assert noted.running() == [DAYS[0]]
    assert said(queue, "--cancel") == "logs: cancelled: 2026-11-02\n"
    assert noted.running() == []
    assert rows(tmp_path) == before


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-11-31", "2026-11-02..", "2026-11-02..2026-11-01"]
)
def test_what_is_no_day_is_refused_in_a_sentence(text):
    with pytest.raises(BadInput, match=r"^--day "):
        backfill.span(text)


def test_a_queue_without_days_says_so(tmp_path):
    with running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "logs") as queue:
        text = said(queue, "--day", DAYS[0], code=2)
    assert "no job of logs has written a table by days yet" in text
