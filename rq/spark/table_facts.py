"""What pages show of tables, read by a process of its own: the web does not load what
reads Delta, and a log that somebody has filled ends this process and no other.

`python -m rq.spark.table_facts ROOT QUEUE/NAME…` says it as one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rq import tables
from rq.errors import RQError, Unreachable
from rq.layout import Root
from rq.spark import remote, table_list, table_places, targets
from rq.spark.remote import STORE
from rq.spark.table_list import Version
from rq.tables import Answer, Facts, Name, Step

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VERSIONS = 100
_COLUMNS, _IDS = 1000, 100
_TEXTS = ("operation", "queue", "batch", "day", "backfill")
_MOST = 2**53  # rows: what JSON has as a number everywhere
_PANIC = "PanicException"  # of a module that cannot be imported
_AT_ONCE = 16  # commits that are read
_LONGEST = 200  # characters
_TRIES, _SILENT = 2, 3  # times that a store is asked, and seconds
_MERGED = ("num_target_rows_inserted", "num_target_rows_updated")
Away = dict[str, str]  # stores that do not answer, and why
_NOTHING: Facts = {
    "table": "",
    "why": "",
    "version": 0,
    "rows": 0,
    "bytes": 0,
    "files": 0,
    "written": 0.0,
    "columns": [],
    "versions": [],
}


def main(words: Sequence[str]) -> int:
    root, *names = words
    # A page waits, and the other tables are to be seen.
    remote.TRIES, remote.SILENT, remote.ANSWER = _TRIES, _SILENT, _SILENT
    json.dump(answer(Root(Path(root)), names), sys.stdout)
    return 0


def answer(root: Root, names: Sequence[str]) -> Answer:
    """Return what is to be said of tables, and of batches that are held."""
    away: Away = {}
    facts = [_facts(root, tables.name(name), away) for name in names]
    return {"tables": facts, "held": list(table_list.held(root))}


def _facts(root: Root, name: Name, away: Away) -> Facts:
    """Return what is to be said of a table; a store that was away for another one is not
    asked again."""
    bucket = _bucket(root, name)
    try:
        table_list.demand()
        if bucket in away:
            raise Unreachable(away[bucket])
        with table_places.rights_of(root, name.queue):
            return _read(root, name)
    except RQError as error:
        why = str(error)
        if bucket and isinstance(error, Unreachable):
            away[bucket] = why
    except BaseException as error:
        if not is_of_log(error):
            raise
        why = f"its log cannot be read: {type(error).__name__}: {error!s:.200}"
    return {**_NOTHING, "table": name.text, "why": why}


def is_of_log(error: BaseException) -> bool:
    """Whether an error may come from a log, which any program may have written: one of
    delta-rs, of Arrow, or of Python on values that are not as usual; and a panic of Rust,
    which is no Exception. A signal and an exit are no matter of a log."""
    return isinstance(error, Exception) or type(error).__name__ == _PANIC


def _bucket(root: Root, name: Name) -> str:
    """Return the store of a table; nothing if it is here."""
    with contextlib.suppress(OSError, RQError):
        stored = tables.stored(root, name)
        return stored.removeprefix(STORE).partition("/")[0] if stored else ""
    return ""


def _read(root: Root, name: Name) -> Facts:
    lake = table_list.load(root, name)
    return {
        **_NOTHING,
        **cast(Facts, table_list.summary(root, name)),
        "columns": table_list.columns(lake)[:_COLUMNS],
        "versions": _steps(table_places.of(root, name), lake),
    }


def _steps(where: str, lake: DeltaTable) -> list[Step]:
    versions = table_list.versions(lake, _VERSIONS)
    place = targets.target(where)
    files = [f"{tables.LOG}/{version['version']:020}.json" for version in versions]
    with place.translated(), ThreadPoolExecutor(_AT_ONCE) as pool:
        commits = pool.map(place.read, files)
        return [
            cast(Step, {**_said(version), **_changes(commit)})
            for version, commit in zip(versions, commits, strict=True)
        ]


def _said(version: Version) -> Mapping[str, object]:
    """Return what a commit says of itself, in the types that pages show: any program may
    have written it."""
    messages = version["messages"]
    texts = {name: version.get(name) for name in _TEXTS}
    return {
        **version,
        **{n: None if t is None else str(t)[:_LONGEST] for n, t in texts.items()},
        "messages": messages if isinstance(messages, int) else None,
        "ids": [str(msg_id)[:_LONGEST] for msg_id in version["ids"][:_IDS]],
    }


def _changes(commit: bytes | None) -> Mapping[str, int | None]:
    """Return how many rows and files a version has brought, and files it took away; of a
    commit that is gone, or cannot be read, nothing is known."""
    try:
        actions = [json.loads(line) for line in (commit or b"{").splitlines()]
    except ValueError:
        return {"rows": None, "added": 0, "removed": 0}
    added = [action["add"] for action in actions if "add" in action]
    removed = sum("remove" in action for action in actions)
    rows = _merged(actions)
    if rows is None:
        rows = sum(_rows(each) for each in added if each.get("dataChange", True))
    return {"rows": rows, "added": len(added), "removed": removed}


def _merged(actions: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many rows a merge has changed or brought, which its files hold among
    others; None: it was no merge."""
    for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
        figures = info.get("operationMetrics") or {}
        if info.get("operation") == "MERGE":
            return sum(int(figures.get(name, 0)) for name in _MERGED)
    return None


def _rows(added: Mapping[str, Any]) -> int:
    rows = int(json.loads(added.get("stats") or "{}").get("numRecords", 0))
    return min(max(rows, 0), _MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
