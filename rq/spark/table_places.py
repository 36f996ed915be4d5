"""Where Delta tables are: below the root, or in the store that the setting of a queue names.

`"spark": {"tables": "s3://BUCKET/PREFIX/"}` is for tables that are made from then on. A table
stays where it was made: one below the root has its log there, one in a store has a file in its
place that says where, written before its first commit. So a setting that is changed, or taken
away, makes no second table, and what lists tables asks no store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from rq import config, names, tables
from rq.config import files
from rq.errors import BadInput, RQError
from rq.layout import Root
from rq.proc import locks
from rq.spark.delta import Held
from rq.tables import Name

_SETTING = "tables"
_LOCK = "_rq.lock"
VARIABLE = "RQ_SPARK_TABLES"  # of a queue's job: the setting
_RIGHTS = "AWS_"  # how the variables begin that say what a process may do in a store


class Taken(BadInput):
    """A place in a store that another table has."""


def of(root: Root, table: Name, setting: str = "") -> str:
    """Return where a table is, a directory or an address in a store; where it is to be made
    if there is none, as the setting of its queue says."""
    stored = tables.stored(root, table)
    if stored is not None:
        return stored
    # The table of what does not fit is beside it, and may have been made first.
    beside = tables.stored(root, table.rejected)
    if beside is not None:
        above, question, options = beside.partition("?")
        return f"{above.removesuffix(tables.REJECTED)}{question}{options}"
    if not setting or any(tables.is_here(root, t) for t in (table, table.rejected)):
        return str(tables.place(root, table))
    above, question, options = setting.partition("?")
    where = f"{above.rstrip('/')}/{table.table}{question}{options}"
    _demand_free(root, table, where)
    return where


def own_setting() -> str:
    """Return where the queue that started this process wants its tables."""
    return os.environ.get(VARIABLE, "")


def setting_of(root: Root, queue: str) -> str:
    """Return where another queue wants its tables; BadConfig."""
    return str(config.read_queue(root.queue(queue)).spark.get(_SETTING, ""))


def _demand_free(root: Root, table: Name, where: str) -> None:
    """Raise BadInput if another table is in the place that one is to have in a store, or
    inside it: both would have the rows of both, or one would be cleared away."""
    place = _parts(where)
    for other in tables.every(root):
        taken = _parts(_stored(root, other)) if other != table else []
        length = min(len(place), len(taken))
        if length > 1 and place[:length] == taken[:length]:
            raise Taken(
                f"{table.text} is to be made in {where.partition('?')[0]}, and "
                f"{other.text} is there: give each queue a prefix of its own, or let "
                f"{table.queue} write {other.text} by the setting allow"
            )


def _stored(root: Root, table: Name) -> str:
    """Return the address of a table in a store; nothing if it is here, or says none."""
    with contextlib.suppress(BadInput):
        return tables.stored(root, table) or ""
    return ""


def _parts(where: str) -> list[str]:
    """Return the host, if one is named, the bucket, and the names on the way to a place.

    >>> _parts("s3://lake/a%20b/orders?scheme=http&endpoint_override=store:9000")
    ['store:9000', 'lake', 'a b', 'orders']
    """
    parts = urlsplit(where)
    host = dict(parse_qsl(parts.query)).get("endpoint_override", "")
    return [host, *(n for n in (parts.netloc, *unquote(parts.path).split("/")) if n)]


def note(table: Name, where: str) -> None:
    """Note that a table is in a store, and that something is written to it; Held if it was
    made elsewhere meanwhile."""
    root = config.find_root(None)
    noted = tables.place(root, table) / tables.STORED
    if tables.stored(root, table) == where:
        os.utime(noted)  # pages look at it
        return
    files.make_dir(noted.parent)
    # The first batches of a table come at once, and a file is replaced by one at a time.
    lock = locks.lock_waiting(noted.parent / _LOCK)
    try:
        _note_first(root, table, where)
    finally:
        os.close(lock)


def _note_first(root: Root, table: Name, where: str) -> None:
    noted = tables.place(root, table) / tables.STORED
    stored = tables.stored(root, table)
    if stored == where:
        return
    if stored is not None or tables.is_here(root, table):
        raise _elsewhere(table.text, where, stored or str(noted.parent))
    try:
        _demand_free(root, table, where)
    except Taken as error:
        raise Held(f"the files of this batch are held: {error}") from None
    files.write_state(noted, {"where": where})


def demand_here(name: str, place: str) -> None:
    """Raise Held if a table that a batch was decided for in a directory was made in a store
    meanwhile: who reads the table would never see its rows."""
    stored = tables.stored_for(Path(place))
    if stored is not None:
        raise _elsewhere(name, place, stored)


def _elsewhere(name: str, where: str, there: str) -> Held:
    return Held(
        f"{name}: the files of this batch are held: it was decided for "
        f"{where.partition('?')[0]}, and the table is {there.partition('?')[0]} since; "
        "`rq spark table held` lists what is, and gives it up"
    )


@contextlib.contextmanager
def rights_of(root: Root, queue: str) -> Iterator[None]:
    """Do something with the rights of a queue's jobs in stores, which its `env_vars` say."""
    before = _rights(os.environ)
    if names.is_queue_name(queue):
        with contextlib.suppress(RQError):  # then it is with those of a person
            os.environ.update(_rights(config.read_queue(root.queue(queue)).env_vars))
    try:
        yield
    finally:
        for variable in _rights(os.environ):
            del os.environ[variable]
        os.environ.update(before)


def _rights(variables: Mapping[str, str]) -> dict[str, str]:
    return {n: value for n, value in variables.items() if n.startswith(_RIGHTS)}
