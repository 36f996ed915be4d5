"""Delta tables as jobs of a week might have written them, without an engine."""

from __future__ import annotations

import importlib.util
import json
import random
import time
from pathlib import Path

from rq import tables
from rq.checks import Batch, Check, Checks, Kind
from rq.layout import Root
from rq.tables import Name

HOUR = 3600.0
TOO_MANY = 150  # rows that are rejected of a batch
HITS = Name("reports", "hits")


def write_week(root: Root, ids: list[str], table: Name = HITS) -> None:
    """Write a week of versions, and the rows that did not fit; nothing where what
    writes Delta is not installed."""
    if importlib.util.find_spec("deltalake") is None:
        return
    rnd = random.Random(7)
    for back in range(28, 0, -1):
        at = time.time() - back * 6 * HOUR
        append(root, table, rnd.randrange(400, 4000), rnd.sample(ids, 1), at)
        rejected = rnd.randrange(5, 300) if back % 5 == 0 else 0
        if rejected:
            append(root, table.rejected, rejected, ids[:1], at)
        expect(root, table, rejected, ids[:1], at)


def expect(root: Root, table: Name, rejected: int, ids: list[str], at: float) -> None:
    """Keep what a batch would have said that was expected of it."""
    holds = rejected < TOO_MANY
    limit = "" if holds else ", at most 10% may"
    every = [
        Check(kind=Kind.EXPECT, text="1,204 rows, no nulls in path", holds=True),
        Check(
            kind=Kind.CONTRACT,
            table=table.table,
            text=f"{rejected} of 1,204 rows break the contract{limit}",
            holds=holds,
        ),
    ]
    batch = Batch(batch_id="b1", time=at, ids=ids, wrote=[table.table])
    Checks(root, table.queue).add(batch, every)


def append(root: Root, table: Name, rows: int, ids: list[str], at: float) -> None:
    """Write a version, as old as `at` says."""
    import pyarrow as pa
    from deltalake import CommitProperties, write_deltalake

    place = tables.place(root, table)
    about = {"rq_queue": table.queue, "rq_batch": ids[0], "rq_ids": ids}
    columns = {
        "day": [time.strftime("%Y-%m-%d", time.gmtime(at))] * rows,
        "host": [f"web-{n % 3}" for n in range(rows)],
        "path": [f"/articles/{n % 97}" for n in range(rows)],
        "bytes": [n * 37 % 90001 for n in range(rows)],
    }
    write_deltalake(
        str(place),
        pa.table(columns),
        mode="append",
        partition_by=["day"],
        commit_properties=CommitProperties(
            custom_metadata={**about, "rq_messages": len(ids)}
        ),
    )
    _date_back(max((place / tables.LOG).glob("*.json")), at)


def _date_back(line_file: Path, at: float) -> None:
    """Let the last version be as old as it is to be shown."""
    lines = [json.loads(line) for line in line_file.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = int(at * 1000)
    line_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def hold(root: Root, queue: str, msg_id: str, why: str) -> None:
    """Let a batch be held."""
    own = root.spark / "writes" / queue / "0123456789abcdef01234567"
    own.mkdir(parents=True)
    decided = {"time": time.time() - HOUR, "messages": [msg_id], "tables": []}
    (own / "list.json").write_text(json.dumps(decided))
    (own / "held.json").write_text(json.dumps({"why": why, "time": time.time()}))
