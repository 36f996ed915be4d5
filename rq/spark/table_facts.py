"""What pages show of tables, read by a process of its own: the web does not load what
reads Delta, and a log that somebody has filled ends this process and no other.

`python -m rq.spark.table_facts ROOT QUEUE/NAME…` says it as one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rq import tables
from rq.errors import RQError
from rq.layout import Root
from rq.spark import table_list
from rq.spark.table_list import Version
from rq.tables import Answer, Facts, Name, Step

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VERSIONS = 100
_COLUMNS, _IDS = 1000, 100
_TEXTS = ("operation", "queue", "batch", "day", "backfill")
_LONGEST = 200  # characters
_MOST = 2**53  # rows: what JSON has as a number everywhere
_PANIC = "PanicException"  # of a module that cannot be imported
_MERGED = ("num_target_rows_inserted", "num_target_rows_updated")
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
    json.dump(answer(Root(Path(root)), names), sys.stdout)
    return 0


def answer(root: Root, names: Sequence[str]) -> Answer:
    """Return what is to be said of tables, and of batches that are held."""
    facts = [_facts(root, tables.name(name)) for name in names]
    return {"tables": facts, "held": list(table_list.held(root))}


def _facts(root: Root, name: Name) -> Facts:
    try:
        table_list.demand()
        lake = table_list.load(root, name)
        return {
            **_NOTHING,
            **cast(Facts, table_list.summary(root, name)),
            "columns": table_list.columns(lake)[:_COLUMNS],
            "versions": _steps(root, name, lake),
        }
    except RQError as error:
        why = str(error)
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


def _steps(root: Root, name: Name, lake: DeltaTable) -> list[Step]:
    log = tables.place(root, name) / tables.LOG
    return [
        cast(
            Step, {**_said(version), **_changes(log / f"{version['version']:020}.json")}
        )
        for version in table_list.versions(lake, _VERSIONS)
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


def _changes(line_file: Path) -> Mapping[str, int | None]:
    """Return how many rows and files a version has brought, and files it took away."""
    try:
        actions = [json.loads(line) for line in line_file.read_bytes().splitlines()]
    except (OSError, ValueError):
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
