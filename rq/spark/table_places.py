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

from rq import config, names, tables
from rq.config import files
from rq.errors import RQError
from rq.layout import Root
from rq.spark.delta import Held
from rq.tables import Name

_SETTING = "tables"
VARIABLE = "RQ_SPARK_TABLES"  # of a queue's job: the setting
_RIGHTS = "AWS_"  # how the variables begin that say what a process may do in a store


def of(root: Root, table: Name, setting: str = "") -> str:
    """Return where a table is, a directory or an address in a store; where it is to be made
    if there is none, as the setting of its queue says."""
    stored = tables.stored(root, table)
    if stored is not None:
        return stored
    if not setting or tables.is_here(root, table):
        return str(tables.place(root, table))
    above, question, options = setting.partition("?")
    return f"{above.rstrip('/')}/{table.table}{question}{options}"


def own_setting() -> str:
    """Return where the queue that started this process wants its tables."""
    return os.environ.get(VARIABLE, "")


def setting_of(root: Root, queue: str) -> str:
    """Return where another queue wants its tables; BadConfig."""
    return str(config.read_queue(root.queue(queue)).spark.get(_SETTING, ""))


def note(table: Name, where: str) -> None:
    """Note that a table is in a store, and that something is written to it; Held if it was
    made elsewhere meanwhile."""
    root = config.find_root(None)
    noted = tables.place(root, table) / tables.STORED
    stored = tables.stored(root, table)
    if stored == where:
        os.utime(noted)  # pages look at it
        return
    if stored is not None or tables.is_here(root, table):
        there = (stored or str(noted.parent)).partition("?")[0]
        raise Held(
            f"{table.text}: the files of this batch are held: it was decided for "
            f"{where.partition('?')[0]}, and the table is {there} since; `rq spark table "
            "held` lists what is, and gives it up"
        )
    files.make_dir(noted.parent)
    files.write_state(noted, {"where": where})


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
