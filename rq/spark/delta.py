"""Delta tables: what a batch adds to one, checked when its files are written, committed once.

What is true at all times: a table is what its log (`_delta_log`) names, so a file under its
final name is nothing before a commit has named it, and whole batches are seen or nothing.

- `plan` looks at the footer of each file that a batch has written, and at the table as it
  is; what does not fit is refused then, and the batch leaves nothing. A plan is part of the
  batch's decision (`writes`), which is durable before the table changes.
- `commit` brings a decision into the table. It loads the table, asks whether the batch is
  in it (`transaction_version`), and commits on that same object, which refuses when any
  other commit came between: then it loads and asks again. So two processes that finish one
  decision add it once; delta-rs itself accepts an id that it has when the table was loaded
  behind it.
- A new column is a commit of its own before that of the rows. Killed between the two, the
  table has a column without values, and the next start finds nothing to add.
- The table may have changed between plan and commit. Columns that it has got are null in
  these rows. What else does not fit is held: the files stay, the table stays as it is, and
  the sentence says what to do.
- A merge is by delta-rs, from files that get no name in the table (`delta_merge`).
- delta-rs does not sync what it writes on a disk: `commit` does, before the batch counts as
  done. In a store (`delta_store`) there is nothing to be synced.
  A last commit that a power cut has torn is taken away, and what it said is committed again.
  If only files are torn that a merge has written, others may commit upon it at any moment: so
  it stays, and a commit of its own, which any other refuses, brings back what was before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rq import back_off
from rq.errors import BadInput, Busy
from rq.spark import (
    delta_log,
    delta_merge,
    delta_nulls,
    delta_parts,
    delta_schemas,
    delta_stats,
    delta_store,
)
from rq.spark.delta_goals import EVOLVE, MERGE, REPLACE, Goal, Plan, demand_installed
from rq.spark.delta_types import BY
from rq.spark.staging import Stage, Staged
from rq.spark.targets import Target, one_line
from rq.words.nesting import Json

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction
    from pyarrow.parquet import FileMetaData

_TRIES = 30  # commits of others that may come between
_AT_ONCE = 16  # footers
_OLDEST = 14 * 86400.0  # seconds until a decision is no longer committed
_IN, _TAKEN_BACK = 1, 0  # what a table says of a batch, as a version of a transaction
_CONFIGURATION = {"delta.setTransactionRetentionDuration": "interval 30 days"}


class Held(BadInput):
    """A decision that does not fit the table any more; its files stay."""


class Overtaken(BadInput):
    """A day that was planned on files which have left the table since."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, as its commit tells it."""

    app_id: str
    time: float
    origin: Mapping[str, Json]  # the messages


def load(path: str) -> DeltaTable | None:
    """Return a table as it is now; None if there is none yet; BadInput, Unreachable.
    `path`: a directory, or an address in a store."""
    if delta_store.is_in_store(path):
        return delta_store.load(path)
    log = Path(path, delta_log.LOG)
    if not log.is_dir():  # so that plain files need nothing that reads Delta
        return None
    demand_installed()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        if delta_log.take_torn(log):
            return load(path)
        raise BadInput(
            f"{path}: its log cannot be read: {one_line(str(error))}"
        ) from None


# ---- what a batch adds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A file of a batch, as its footer tells of it."""

    file: Staged
    path: str
    schema: str  # as Delta's JSON
    figures: str
    nulls: set[str]  # columns without a value in some row


def plan(goal: Goal, place: Target, stage: Stage, staged: Sequence[Staged]) -> Plan:
    """Return what written files add to a table; BadInput says what of them does not fit
    the table, or one another."""
    if not staged:
        return Plan(goal.name)
    if goal.mode == MERGE:
        delta_merge.demand_small_batch(goal.name, sum(file.size for file in staged))
    with ThreadPoolExecutor(_AT_ONCE) as pool, place.translated():
        every = list(pool.map(lambda file: _written(place, stage, file), staged))
    for each in every:
        _demand(_difference(every[0].schema, each.schema), goal, each.file)
    planned = Plan(
        goal.name,
        delta_nulls.requiring(every[0].schema, goal.not_null),
        tuple(each.figures for each in every),
        goal.evolve,
        goal.mode,
        nulls=tuple(sorted(set[str]().union(*(each.nulls for each in every)))),
        key=goal.key,
        order=goal.order,
    )
    table = load(place.address)
    if table is not None:
        _demand_table(table, goal, planned, place, every)
    return planned


def _written(place: Target, stage: Stage, file: Staged) -> _Written:
    from deltalake import Schema

    path = f"{place.path}/{stage.inner}/{file.inner}"
    meta, arrow = _footer(place, path)
    figures = delta_stats.of(meta, stage.by)
    return _Written(
        file=file,
        path=path,
        schema=Schema.from_arrow(_whole(arrow)).to_json(),
        figures=figures,
        nulls=delta_nulls.of_file(figures, file.folder),
    )


def _demand_table(
    table: DeltaTable,
    goal: Goal,
    planned: Plan,
    place: Target,
    every: Sequence[_Written],
) -> None:
    """Raise BadInput unless a table takes what is planned: it names the first file that
    does not fit."""
    there = table.schema().to_json()
    required = delta_nulls.required(there)
    for each in every if required else ():
        unsaid = delta_nulls.unsaid(each.figures, each.file.folder, required)
        nulls = each.nulls | delta_nulls.read(each.path, place.system, unsaid)
        _demand(delta_nulls.refused(required, nulls), goal, each.file)
    why = _against(table, planned, goal.by) or delta_schemas.lost(there, planned.schema)
    _demand(why, goal, every[0].file)
    if goal.mode == MERGE:
        delta_merge.demand_small(goal.name, table)


def _difference(first: str, schema: str) -> str:
    return delta_schemas.lost(first, schema) or delta_schemas.misfit(
        first, schema, evolve=False
    )


def _footer(place: Target, path: str) -> tuple[FileMetaData, pa.Schema]:
    from pyarrow import parquet

    meta = parquet.read_metadata(path, filesystem=place.system)
    return meta, meta.schema.to_arrow_schema()


def _whole(schema: pa.Schema) -> pa.Schema:
    """Return a file's schema, and with it the columns that only directories hold."""
    import pyarrow as pa

    by = json.loads((schema.metadata or {}).get(BY, b"{}"))
    parted = [pa.field(name, pa.type_for_alias(kind)) for name, kind in by.items()]
    return pa.schema([*schema, *parted])


def _demand(why: str, goal: Goal, file: Staged) -> None:
    if why:
        where = f" (first in {file.folder})" if file.folder else ""
        raise BadInput(f"q.table: {goal.name}: {why}{where}")


# ---- whether rows fit the table as it is


def _against(table: DeltaTable, plan: Plan, by: Sequence[str]) -> str:
    """Return why rows do not fit a table that may have changed since they were planned;
    in columns that it has got meanwhile they are null."""
    parted = table.metadata().partition_columns
    if list(by) != list(parted):
        there, here = ", ".join(parted) or "nothing", ", ".join(by) or "nothing"
        return f"the table is parted by {there}, these rows by {here}"
    schema = table.schema().to_json()
    required, have = delta_nulls.required(schema), delta_schemas.columns(plan.schema)
    nulls = {*plan.nulls, *(name for name in required if name not in have)}
    return delta_schemas.misfit(
        schema, plan.schema, EVOLVE[plan.evolve]
    ) or delta_nulls.refused(required, nulls)


# ---- the commit


def commit(
    place: Target,
    stage: Stage,
    named: Mapping[str, Staged],
    plan: Plan,
    decided: Decided,
) -> None:
    """Let a table have the files of a batch, once; Held, Busy, BadInput. `named`: the files
    by their names in the table."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(back_off.delay(attempt, 0.02, 1.0))
        if _committed(place, stage, named, plan, decided):
            _sync(place, plan, decided)
            return
    raise Busy(f"{plan.name}: others wrote to the table {_TRIES} times meanwhile")


def has(place: Target, app_id: str) -> bool:
    """Whether a batch is in a table."""
    table = load(place.address)
    return table is not None and _is_in(table, app_id)


def _is_in(table: DeltaTable, app_id: str) -> bool:
    return table.transaction_version(app_id) not in (None, _TAKEN_BACK)


def is_wanted(place: Target, stage: Stage, plan: Plan, decided: Decided) -> bool:
    """Whether a batch is to be committed yet; Held if it cannot be."""
    if not plan.stats and not plan.removes:  # no rows
        return False
    table = load(place.address)
    if table is not None and _is_in(table, decided.app_id):
        if not _is_torn(place, table, plan, decided):
            _sync(place, plan, decided)
            return False
        table = load(place.address)
    if table is not None:
        _demand_fit(table, stage, plan)
    if time.time() - decided.time > _OLDEST:
        _demand_no_day(plan)
        raise Held(
            f"{plan.name}: the files of this batch are held: it was decided more than 14 "
            "days ago, and is not committed any more; `rq spark table held` lists what is, "
            "and gives it up"
        )
    return True


def _demand_fit(table: DeltaTable, stage: Stage, plan: Plan) -> None:
    why = _against(table, plan, stage.by)
    if why:
        _demand_no_day(plan)
        raise Held(_held(plan.name, f"{why}, since another batch came first"))


def _demand_no_day(plan: Plan) -> None:
    """Raise Overtaken for what may be planned again."""
    if plan.removes is not None:
        raise Overtaken(f"{plan.name}: it has changed since")


def _held(name: str, why: str) -> str:
    return (
        f"{name}: the files of this batch are held: {why}; `rq spark table held` lists "
        "what is; retry the message when the table fits, or give the batch up there"
    )


def behind(name: str, queue: str, key: str) -> str:
    """Return that rows wait until those of an earlier batch are in a table."""
    why = (
        f"an earlier one of {queue}, {key}, is, and these rows must come after its rows"
    )
    return _held(name, f"{why}: commit it or give it up first")


def _committed(
    place: Target,
    stage: Stage,
    named: Mapping[str, Staged],
    plan: Plan,
    decided: Decided,
) -> bool:
    """Try it once; False if another commit came between."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    # The question and the commit are those of one object.
    table = load(place.address)
    if table is not None and _is_in(table, decided.app_id):
        return True
    try:
        if table is None:
            _create(place, stage, named, plan, decided)
            return plan.mode != MERGE
        _demand_fit(table, stage, plan)
        if _widen(table, plan):
            return False
        if plan.mode == MERGE:
            delta_merge.merge(table, place, list(named), plan, _properties(decided))
        else:
            _append(table, stage, named, plan, decided)
    except CommitFailedError:
        return False
    except DeltaError as error:
        if table is None and load(place.address) is not None:  # made meanwhile
            return False
        raise delta_store.trouble(place.address, plan.name, error) from None
    return True


def _create(
    place: Target,
    stage: Stage,
    named: Mapping[str, Staged],
    plan: Plan,
    decided: Decided,
) -> None:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import create_table_with_add_actions

    schema = Schema.from_json(plan.schema)
    where, options = delta_store.uri(place.address), delta_store.options(place.address)
    if plan.mode == MERGE:  # into a table without rows
        DeltaTable.create(
            where,
            schema,
            mode="error",
            configuration=_CONFIGURATION,
            storage_options=options,
        )
        return
    create_table_with_add_actions(
        where,
        schema,
        _added(named, plan, decided),
        mode="error",
        partition_by=list(stage.by),
        configuration=_CONFIGURATION,
        storage_options=options,
        commit_properties=_properties(decided, _replaced(named, plan)),
    )


def _widen(table: DeltaTable, plan: Plan) -> bool:
    """Add the columns that a table lacks; return whether it lacked any."""
    from deltalake import CommitProperties, Schema

    there = delta_schemas.columns(table.schema().to_json())
    # Rows that are there have no value in them.
    schema = Schema.from_json(delta_nulls.requiring(plan.schema, ()))
    lacking = [field for field in schema.fields if field.name not in there]
    if lacking:
        once = CommitProperties(max_commit_retries=0)
        table.alter.add_columns(lacking, commit_properties=once)
    return bool(lacking)


def _append(
    table: DeltaTable,
    stage: Stage,
    named: Mapping[str, Staged],
    plan: Plan,
    decided: Decided,
) -> None:
    over = delta_parts.superseded(table, _replaced(named, plan), decided.time)
    added = _added(named, plan, decided, over)
    if not added and not plan.removes:
        return
    parts = _replaced(named, plan) - over
    gone = delta_parts.removed(table, parts, plan.removes or ())
    if len(gone) < len(plan.removes or ()):
        _demand_no_day(plan)
    table.create_write_transaction(
        [*gone, *added],
        "append",
        table.schema(),
        list(stage.by),
        commit_properties=_properties(decided, parts),
    )


def _replaced(named: Mapping[str, Staged], plan: Plan) -> set[str]:
    """Return the directories whose files a batch replaces."""
    is_replacing = plan.mode == REPLACE
    return {file.folder for file in named.values()} if is_replacing else set()


def _added(
    named: Mapping[str, Staged],
    plan: Plan,
    decided: Decided,
    but: Collection[str] = (),
) -> list[AddAction]:
    """Return what adds files to a table; none of the directories `but`."""
    from deltalake.transaction import AddAction

    return [
        AddAction(
            path=path,
            size=file.size,
            partition_values=delta_parts.values(file.folder),
            modification_time=int(decided.time * 1000),
            data_change=True,
            stats=stats,
        )
        for (path, file), stats in zip(named.items(), plan.stats, strict=True)
        if file.folder not in but
    ]


# ---- what a commit says


def _properties(
    decided: Decided, parts: Collection[str] = (), stands: int = _IN
) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    replaced = delta_parts.notes(parts, decided.time)
    # With the time of the commit it expires after 30 days; what asks for it, a decision,
    # is committed for 14.
    batch = Transaction(decided.app_id, stands, int(time.time() * 1000))
    about = {f"rq_{name}": value for name, value in decided.origin.items()}
    return CommitProperties(
        custom_metadata=about,
        max_commit_retries=0,
        app_transactions=[batch, *replaced],
    )


def _sync(place: Target, plan: Plan, decided: Decided) -> None:
    """Let what a batch has brought into a table outlast a power cut."""
    if place.is_store:
        return
    table = load(place.address)
    if plan.mode == MERGE and table is not None:
        delta_merge.sync(table, place, decided.time - delta_log.SLACK)
    delta_log.sync(Path(place.path), decided.time)


def _is_torn(place: Target, table: DeltaTable, plan: Plan, decided: Decided) -> bool:
    """Whether a power cut has torn files that delta-rs wrote, which it does not sync; then
    the version before their commit, the last one, is brought back. Held if others have
    written since: theirs is not to be lost."""
    if plan.mode != MERGE or place.is_store or delta_merge.is_whole(table, place):
        return False
    last = Path(place.path, delta_log.LOG, f"{table.version():020}.json")
    back = _properties(decided, stands=_TAKEN_BACK)
    if delta_log.is_of(last, decided.app_id) and delta_merge.take_back(table, back):
        return True
    why = "a file of the table is torn, and others have written to it since this batch"
    raise Held(_held(plan.name, f"{why}: restore a version that can be read"))
