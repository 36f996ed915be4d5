"""A day of a Delta table, made again: which files it takes the place of, and what comes instead.

The files of a batch bear its name, and the log says from which files `optimize` has joined
others: so each file of a day is of known batches, or of none that a queue knows. Those of the
batches that a day is made of go; others stay. Where that cannot be told, a day is refused.

Paths of files are those that this day was planned on. If one of them is not in the table any
more when the decision is carried out, nothing of it is done there, and it is planned again.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from rq import days
from rq.errors import BadInput
from rq.spark import delta, delta_parts, delta_schemas, targets
from rq.spark.delta_goals import APPEND, REPLACE, Plan
from rq.spark.delta_log import LOG
from rq.spark.staging import Stage, Staged
from rq.spark.writes import Table

_AT_ONCE = 16  # commits that are read
_NAMED = re.compile(r"(.+)-\d{5,}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The files of a day whose place others take."""

    where: str  # of the table
    by: tuple[str, ...]
    schema: str
    files: frozenset[str]
    manifests: frozenset[str]  # of batches that have rows in these files


@dataclass(slots=True)
class _Log:
    """What the log tells of files: how many rows came in each, and which were joined."""

    rows: dict[str, int] = field(default_factory=dict)
    joined: dict[str, list[str]] = field(default_factory=dict)

    def leaves(self, path: str) -> list[str]:
        """Return the files in which the rows of a file came."""
        if path not in self.joined:
            return [path]
        return [leaf for part in self.joined[path] for leaf in self.leaves(part)]


def taken(where: str, day: str, parts: Mapping[str, int]) -> Taken | None:
    """Return what a day takes the place of: the rows of batches, by manifest; None if there
    is no table. BadInput: what they have written is in files with other rows."""
    table = delta.load(where)
    if table is None:
        return None
    log = _read(where)
    active = delta_parts.files(table)
    mine: set[str] = set()
    rows: Counter[str] = Counter()
    for path in (path for path in active if _day(path) == day):
        leaves = log.leaves(path)
        batches = {_manifest(leaf) for leaf in leaves}
        if not batches & parts.keys():
            continue
        if batches - parts.keys():
            raise BadInput(_mixed(where, day))
        mine.add(path)
        for leaf in leaves:
            rows[_manifest(leaf)] += active.get(leaf, log.rows.get(leaf, 0))
    _demand_whole(where, day, parts, rows, _left(log, active, mine, parts, day))
    return Taken(
        where=where,
        by=tuple(table.metadata().partition_columns),
        schema=table.schema().to_json(),
        files=frozenset(mine),
        manifests=frozenset(rows),
    )


def _mixed(where: str, day: str) -> str:
    name = _name(where)
    return (
        f"{day}: files of the table {name} hold rows of its batches and other rows, since "
        "others have joined or changed them: it cannot be made again"
    )


def _name(where: str) -> str:
    """Return the name of a table, which is the last one of its place.

    >>> _name("/data/orders"), _name("s3://lake/shop/orders?endpoint_override=127.0.0.1:80")
    ('orders', 'orders')
    """
    return os.path.basename(where.partition("?")[0] if "://" in where else where)


def _left(
    log: _Log,
    active: Mapping[str, int],
    mine: Iterable[str],
    parts: Mapping[str, int],
    day: str,
) -> Counter[str]:
    """Return how many rows of batches lie in directories that still hold files of theirs:
    a directory whose files were all replaced counts no more."""
    there = {leaf for path in mine for leaf in log.leaves(path)}
    held = {(_manifest(leaf), os.path.dirname(leaf)) for leaf in there}
    rows: Counter[str] = Counter()
    for path, count in {
        **log.rows,
        **{p: active[p] for p in there & active.keys()},
    }.items():
        place = (_manifest(path), os.path.dirname(path))
        if place in held and place[0] in parts and _day(path) == day:
            rows[place[0]] += count
    return rows


def _demand_whole(
    where: str,
    day: str,
    parts: Mapping[str, int],
    rows: Mapping[str, int],
    came: Mapping[str, int],
) -> None:
    """Raise BadInput if some rows of a batch were changed, and others were not."""
    for manifest, count in rows.items():
        if count not in (came.get(manifest), parts[manifest]):
            raise BadInput(_mixed(where, day))


def _day(path: str) -> str:
    return days.day_of(os.path.dirname(path))


def _manifest(path: str) -> str:
    """Return the batch that a file's name says; "" if it says none.

    >>> _manifest("day=2026-11-01/logs-b1-ab12-00003.parquet"), _manifest("part-x.parquet")
    ('logs-b1-ab12', '')
    """
    match = _NAMED.fullmatch(os.path.basename(path))
    return match[1] if match else ""


def _read(where: str) -> _Log:
    read, place = _Log(), targets.target(where)
    with place.translated(), ThreadPoolExecutor(_AT_ONCE) as pool:
        names = [f"{LOG}/{n}" for n in place.names(LOG) if n.endswith(".json")]
        commits = list(pool.map(place.read, names))
    for commit in commits:
        actions = [json.loads(line) for line in (commit or b"").splitlines()]
        gone = [action["remove"] for action in actions if "remove" in action]
        for added in (action["add"] for action in actions if "add" in action):
            _note(read, added, gone)
    return read


def _note(
    log: _Log, added: Mapping[str, Any], gone: Sequence[Mapping[str, Any]]
) -> None:
    path = unquote(added["path"])
    if path in log.rows:  # an older version was brought back
        return
    log.rows[path] = json.loads(added.get("stats") or "{}").get("numRecords", 0)
    if not added.get("dataChange", True):
        values = added.get("partitionValues")
        parts = [unquote(g["path"]) for g in gone if g.get("partitionValues") == values]
        log.joined[path] = parts


# ---- what comes instead


def merged(written: Sequence[Table], old: Taken | None, day: str, key: str) -> Table:
    """Return all that was written for a day of one table as what takes the place of its
    files: one commit. `key`: where files would lie if nothing was written."""
    first = next((table for table in written if table.files), None)
    first = first or (written[0] if written else _empty(old, key))
    assert first.plan is not None
    files: dict[str, list[tuple[Staged, str]]] = {}
    for number, table in enumerate(written):
        assert table.plan is not None
        _demand_alike(first.plan, table.plan)
        for folder, pairs in _of_day(table, day).items():
            moved = [(_moved(first.stage, table.stage, f, number), s) for f, s in pairs]
            if table.plan.mode == REPLACE:
                files[folder] = moved
            else:
                files.setdefault(folder, []).extend(moved)
    every = [pair for pairs in files.values() for pair in pairs]
    removes = tuple(sorted(old.files)) if old else ()
    plan = replace(
        first.plan,
        stats=tuple(stats for _, stats in every),
        schema=first.plan.schema or (old.schema if old else ""),
        mode=APPEND,
        removes=removes,
        nulls=tuple(sorted({n for t in written if t.plan for n in t.plan.nulls})),
    )
    return Table(first.stage, [file for file, _ in every], plan)


def _empty(old: Taken | None, key: str) -> Table:
    assert old is not None
    stage = Stage(old.where, key, old.by, is_delta=True)
    return Table(stage, [], Plan(_name(old.where), old.schema))


def _demand_alike(first: Plan, plan: Plan) -> None:
    if plan.schema and first.schema and plan.schema != first.schema:
        raise BadInput(
            f"q.table: {plan.name}: batches of one day have rows of different types: "
            f"{delta_schemas.misfit(first.schema, plan.schema, evolve=False)}"
        )


def _of_day(table: Table, day: str) -> dict[str, list[tuple[Staged, str]]]:
    """Return the files of a day, and their figures, by directory."""
    assert table.plan is not None
    files: dict[str, list[tuple[Staged, str]]] = {}
    for file, stats in zip(table.files, table.plan.stats, strict=True):
        if days.day_of(file.folder) == day:
            files.setdefault(file.folder, []).append((file, stats))
    return files


def _moved(stage: Stage, of: Stage, file: Staged, number: int) -> Staged:
    """Let a file lie among those of the first call; return it."""
    if stage == of:
        return file
    place = targets.target(stage.where)
    there = replace(file, name=f"{number}-{file.name}")
    with place.translated():
        place.name_file(f"{of.inner}/{file.inner}", f"{stage.inner}/{there.inner}")
        place.sync([os.path.dirname(f"{stage.inner}/{there.inner}")])
    return there
