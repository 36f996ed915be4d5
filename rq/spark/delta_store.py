"""How delta-rs finds a table: in a directory, or in a store, as its address says.

A table in a store is `s3://BUCKET/PREFIX/NAME?OPTIONS`, judged and understood as what
`q.write` is settings. A commit there is a file that is put only if there is none of its name
(`If-None-Match`), so of two at once one fails and looks again; a file is there whole or not
at all, and outlasts a power cut, so nothing is synced.

Rights are those of this process; they are settings to delta-rs each time, since a process that
looks at the tables of several queues has others for each.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import quote

from rq.errors import BadInput, RQError
from rq.spark import remote, targets
from rq.spark.delta_goals import demand_installed
from rq.spark.delta_log import LOG
from rq.spark.remote import STORE

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.compute import Expression
    from pyarrow.dataset import FileSystemDataset

_RIGHTS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def is_in_store(where: str) -> bool:
    return where.startswith(STORE)


def uri(where: str) -> str:
    """Return what delta-rs calls a place."""
    if not is_in_store(where):
        return where
    return STORE + quote(remote.store(where, None)[1])


def options(where: str) -> dict[str, str] | None:
    """Return what delta-rs needs to reach a place; it is shown to no person."""
    if not is_in_store(where):
        return None
    system, _ = remote.store(where, None)
    named = remote.options(where)
    # `timeout` is for a whole answer, so it is longer than what is waited for a byte.
    settings = {
        "aws_conditional_put": "etag",
        "aws_region": str(system.region),
        "timeout": f"{remote.ANSWER}s",
        "connect_timeout": f"{remote.SILENT}s",
        "max_retries": str(remote.TRIES - 1),
        "retry_timeout": f"{remote.ANSWER * remote.TRIES}s",
    }
    if endpoint := named.get("endpoint_override"):
        scheme = named.get("scheme", "https")
        settings["aws_endpoint_url"] = f"{scheme}://{endpoint}"
        settings["aws_allow_http"] = str(scheme == "http").lower()
    return {
        **settings,
        **{name: os.environ[name] for name in _RIGHTS if name in os.environ},
    }


def load(where: str) -> DeltaTable | None:
    """Return a table in a store as it is now; None if there is none yet; Unreachable,
    BadInput."""
    place = targets.target(where)
    with translated(where):
        # So that plain files need nothing that reads Delta.
        if not place.has_below(LOG):
            return None
        demand_installed()
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(uri(where), storage_options=options(where))
        except TableNotFoundError:
            return None


def load_version(where: str, version: int) -> DeltaTable:
    """Return a table as it was in a version."""
    from deltalake import DeltaTable

    return DeltaTable(uri(where), version, storage_options=options(where))


def dataset(lake: DeltaTable) -> FileSystemDataset:
    """Return the rows of a table for an engine that filters them.

    What delta-rs itself promises of a file is wrong for a column whose least or greatest value
    the log does not say, as it is for each that came later, and for fractions: its rows would
    be passed over. So only what parts the table is promised; the rest the footers of files say.
    """
    from pyarrow import compute
    from pyarrow.dataset import FileSystemDataset, get_partition_keys

    whole = lake.to_pyarrow_dataset()
    parted = lake.metadata().partition_columns
    fragments = []
    for file in whole.get_fragments():
        values = get_partition_keys(file.partition_expression)
        wanted = [_has(whole.schema.field(name), values[name]) for name in parted]
        fragments.append(
            whole.format.make_fragment(
                file.path,
                filesystem=whole.filesystem,
                partition_expression=reduce(
                    operator.and_, wanted, compute.scalar(True)
                ),
            )
        )
    return FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)


def _has(column: pa.Field, value: object) -> Expression:
    """Return that a column has a value, or none, in each row."""
    import pyarrow as pa
    from pyarrow import compute

    field = compute.field(column.name)
    return field.is_null() if value is None else field == pa.scalar(value, column.type)


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Do something with a table; what fails in its store is Unreachable or BadInput. What
    fails on a disk stays as it is."""
    if not is_in_store(where):
        yield
        return
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise
    except (OSError, DeltaError) as error:
        raise trouble(where, "", error) from None


def trouble(where: str, table: str, error: Exception) -> RQError:
    """Return what an error means of which delta-rs tells."""
    if is_in_store(where):
        return targets.trouble(where.partition("?")[0], error)
    return BadInput(f"{table}: {targets.one_line(str(error))}")
