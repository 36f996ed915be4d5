"""What is done to a Delta table as a whole: small files joined, old ones removed, an older
version brought back. Each is a commit of its own, or none, and on disk when it returns."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

from rq import tables
from rq.config import files
from rq.errors import BadInput, Busy, Refused
from rq.layout import Root
from rq.spark import delta_log, delta_store, table_list
from rq.spark.targets import one_line
from rq.tables import Name

LEAST = 7 * 86400.0  # seconds that files stay which no version names
_TRIES = 5


def optimize(root: Root, table: Name) -> tuple[int, int]:
    """Join small files of a table; return how many it had, and has. Rows, their order in
    a file apart, stay as they are."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError, DeltaError

    once = CommitProperties(max_commit_retries=0)
    for _ in range(_TRIES):
        lake, since = table_list.load(root, table), time.time()
        before = set(lake.file_uris())
        try:
            with delta_store.translated(lake.table_uri):
                lake.optimize.compact(commit_properties=once)
        except CommitFailedError:
            continue  # another commit came between: on the table as it is now
        except DeltaError as error:  # the disk is full, as one
            raise BadInput(f"{table.text}: {one_line(str(error))}") from None
        after = set(table_list.load(root, table).file_uris())
        _keep(root, table, since, after - before)
        return len(before), len(after)
    raise Busy(
        f"{table.text}: others write to the table all the time: try it again later"
    )


def restore(root: Root, table: Name, version: int) -> int:
    """Let a table be what it was in a version; return the number of the new one."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError, DeltaError

    lake, since = table_list.load(root, table), time.time()
    if not 0 <= version <= lake.version():
        raise BadInput(f"{table.text} has the versions 0 to {lake.version()}")
    once = CommitProperties(max_commit_retries=0)
    try:
        with delta_store.translated(lake.table_uri):
            lake.restore(version, commit_properties=once)
    except CommitFailedError:
        raise Busy(f"{table.text}: another commit came between: say it again") from None
    except (DeltaError, OSError) as error:
        raise BadInput(f"{table.text}: {one_line(str(error))}") from None
    _keep(root, table, since)
    return int(table_list.load(root, table).version())


def vacuum(root: Root, table: Name, keep: float, dry: bool) -> list[str]:
    """Remove files that no version of the last `keep` seconds names; return these. Refused
    while a batch was decided before that and is not in the table."""
    if keep < LEAST:
        raise BadInput(
            "files that a version named stay for 7 days at least: say --keep 7d or more"
        )
    late = [h for h in table_list.held(root) if h["time"] < time.time() - keep]
    for entry in late:
        if entry["queue"] == table.queue or table.text in entry["tables"]:
            raise Refused(
                f"{table.text}: a batch that was decided before is not in its tables: "
                "see `rq spark table held`"
            )
    lake, since = table_list.load(root, table), time.time()
    with delta_store.translated(lake.table_uri):
        removed = lake.vacuum(retention_hours=int(keep / 3600), dry_run=dry, full=True)
    if not dry:
        _keep(root, table, since)
    return [unquote(path) for path in removed]


def _keep(root: Root, table: Name, since: float, added: Collection[str] = ()) -> None:
    """Let files that were added, and the log, outlast a power cut; in a store they do."""
    place = tables.place(root, table)
    if tables.stored(root, table) is not None:
        os.utime(place / tables.STORED)  # pages look at it
        return
    for uri in added:
        path = uri.removeprefix("file://")
        files.sync(Path(path))
        files.sync(Path(os.path.dirname(path)))
    delta_log.sync(place, since)
