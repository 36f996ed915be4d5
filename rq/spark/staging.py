"""Tables as Parquet files that no reader sees yet: written by tasks, a file at a time.

A file lies under `_rq/KEY/` of its target, in the directories that it is meant for, and
has no suffix. `writes` gives it its name when the batch has ended.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from rq.config import files
from rq.errors import BadInput
from rq.spark import delta_types, rejected, targets
from rq.spark.remote import STORE
from rq.spark.targets import OURS, Target
from rq.words import visible

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

Written = TypeVar("Written")
NULL = "__HIVE_DEFAULT_PARTITION__"  # in the name of a directory: no value, or no text
_MOST_FILES = 10_000  # of a task
_LARGEST = 256 * 1024 * 1024  # bytes of a file, about; a store copies 5 GB at once
_ROWS, _GROUP = 128 * 1024, 32 * 1024 * 1024  # rows and bytes of a row group, about
_SAMPLED = 10_000  # rejected rows among which those are that a sentence names
_LONGEST = 200  # bytes of the name of a directory
_COLUMN = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
# What Spark writes as %XX, and all readers read so.
_HIDDEN = re.compile(r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the files of one table go; travels to the tasks."""

    where: str
    key: str
    by: tuple[str, ...] = ()
    is_delta: bool = False  # of a table of Delta, which has types of its own
    contract: str = ""  # what rows keep, if they have marks (`rejected`)

    @property
    def inner(self) -> str:
        """Its directory in the target."""
        return f"{OURS}/{self.key}"

    @property
    def aside(self) -> Stage:
        """That of the rows that break the contract."""
        where, question, options = self.where, "", ""
        if where.startswith(STORE):
            where, question, options = where.partition("?")
        beside = f"{where}{rejected.SUFFIX}{question}{options}"
        return Stage(beside, self.key, is_delta=True)


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that waits for its name."""

    folder: str  # `day=2026-01-02/host=a`; empty if the table is not parted
    name: str
    rows: int
    size: int
    is_rejected: bool = False  # of the table beside that of its stage

    @property
    def inner(self) -> str:
        """Its path below that of its stage."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


def check_columns(
    by: Sequence[str], columns: Sequence[str], verb: str = "q.write"
) -> None:
    """Raise BadInput unless a table can be parted by some of its columns."""
    for name in by:
        if name not in columns:
            have = visible.line(", ".join(columns))
            raise BadInput(
                f"{verb}: there is no column {name!r:.60} to part by, only {have:.200}"
            )
        if not _COLUMN.fullmatch(name):
            raise BadInput(
                f"{verb}: the column {name!r:.60} cannot name directories: rename it, "
                "letters and digits only"
            )
    if len(set(by)) < len(by):
        raise BadInput(f"{verb}: by names a column twice")
    if len(by) == len(columns):
        raise BadInput(f"{verb}: by names all columns: none is left for the files")


def write(batches: Iterable[pa.RecordBatch], stage: Stage, part: str) -> list[Staged]:
    """Write batches, sorted by the columns that part them, into files whose names begin
    with `part`; return these. BadInput, Unreachable."""
    if stage.is_delta:
        batches = delta_types.shape(batches, stage.by)
    if stage.contract:
        return _write_sifted(batches, stage, part)
    return _write(batches, stage, part)


def _write_sifted(
    batches: Iterable[pa.RecordBatch], stage: Stage, part: str
) -> list[Staged]:
    """Write the rows that break a rule beside the others."""
    sieve = rejected.Sieve(stage.contract)
    target = targets.target(stage.aside.where)
    with contextlib.closing(_Files(target, stage.aside, part)) as aside:

        def kept() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                broken = sieve.broken(batch)
                if broken is not None:
                    with target.translated():
                        aside.add("", broken)
                yield sieve.kept(batch)

        staged = _write(kept(), stage, part)
        with target.translated():
            return [*staged, *(replace(f, is_rejected=True) for f in aside.end())]


def _write(batches: Iterable[pa.RecordBatch], stage: Stage, part: str) -> list[Staged]:
    target = targets.target(stage.where)
    is_in_lake = stage.is_delta and target.is_store
    with contextlib.closing(_Files(target, stage, part)) as part_files:
        for batch in batches:
            with target.translated():
                for folder, rows in _parted(batch, stage.by):
                    part_files.add(_in_store(folder) if is_in_lake else folder, rows)
        with target.translated():
            return part_files.end()


def samples(stage: Stage, file: Staged, most: int = 3) -> str:
    """Return what some rejected rows of a file break."""
    from pyarrow import parquet

    place = targets.target(stage.where)
    path = f"{place.path}/{stage.inner}/{file.inner}"
    with place.translated():
        columns = ["column", "rule", "value"]
        rows = parquet.read_table(path, columns=columns, filesystem=place.system)
    entries = rows.slice(0, _SAMPLED).to_pylist()
    return rejected.samples(entries, most)


# ---- files


class _Files:
    """The files of one task, one of which is open: the rows come in order."""

    def __init__(self, target: Target, stage: Stage, part: str) -> None:
        self._target, self._stage, self._part = target, stage, part
        self._top = f"{target.path}/{stage.inner}"
        self._ended: list[Staged] = []
        self._open: _File | None = None

    def add(self, folder: str, rows: pa.RecordBatch) -> None:
        file = self._open
        if file is None or file.folder != folder or file.size > _LARGEST:
            self._finish()
            self._open = file = self._begin(folder, rows.schema)
        file.add(rows)

    def end(self) -> list[Staged]:
        self._finish()
        folders = {staged.folder for staged in self._ended}
        self._target.sync(f"{self._stage.inner}/{folder}" for folder in folders)
        return self._ended

    def close(self) -> None:
        """Let go of a file that is not whole."""
        if self._open is not None:
            self._open.give_up()

    def _begin(self, folder: str, schema: pa.Schema) -> _File:
        number = len(self._ended)
        if number == _MOST_FILES:
            raise BadInput(
                f"more than {_MOST_FILES:,} files of one task: part by columns "
                "that have fewer values"
            )
        place = f"{self._top}/{folder}" if folder else self._top
        if not self._target.is_store:
            self._target.system.create_dir(place, recursive=True)
        name = f"{self._part}-{number}"
        stream = self._target.system.open_output_stream(f"{place}/{name}")
        return _File(folder, name, stream, schema)

    def _finish(self) -> None:
        if self._open is None:
            return
        self._ended.append(self._open.end())
        self._open = None
        if not self._target.is_store:
            files.sync(Path(self._top, self._ended[-1].inner))


class _File:
    """A Parquet file into which rows are put; it keeps those of one row group."""

    def __init__(
        self, folder: str, name: str, stream: pa.NativeFile, schema: pa.Schema
    ) -> None:
        from pyarrow import parquet

        self.folder, self._name, self.stream = folder, name, stream
        self._writer: parquet.ParquetWriter = _said(
            lambda: parquet.ParquetWriter(stream, schema, compression="zstd")
        )
        self._kept: list[pa.RecordBatch] = []
        self._rows = self._waiting = self._bytes = 0

    @property
    def size(self) -> int:
        """How many bytes are written."""
        return int(self.stream.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        self._kept.append(rows)
        self._waiting += rows.num_rows
        self._bytes += rows.nbytes
        if self._waiting >= _ROWS or self._bytes >= _GROUP:
            self._write()

    def end(self) -> Staged:
        self._write()
        self._writer.close()
        size = self.size
        self.stream.close()
        return Staged(self.folder, self._name, self._rows, size)

    def give_up(self) -> None:
        """Let go of it, though it is not whole."""
        for part in (self._writer, self.stream):
            with contextlib.suppress(Exception):
                part.close()
        # Else it complains, when it is collected, of the stream that is closed.
        self._writer.is_open = False

    def _write(self) -> None:
        import pyarrow as pa

        if self._kept:
            table = pa.Table.from_batches(self._kept)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._rows += self._waiting
        self._kept, self._waiting, self._bytes = [], 0, 0


def _said(make: Callable[[], Written]) -> Written:
    """Make something of Arrow; BadInput says what it cannot."""
    import pyarrow as pa

    try:
        return make()
    except pa.ArrowNotImplementedError as error:
        raise BadInput(f"{error!s:.200}") from None


# ---- directories


def _parted(
    batch: pa.RecordBatch, by: Sequence[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch where the value of a column changes; give the directory of each piece,
    and its rows without these columns."""
    if not batch.num_rows:
        return
    if not by:
        yield "", batch
        return
    columns = {name: batch.column(name) for name in by}
    rest = batch.drop_columns(list(by))
    begin = 0
    for end in _ends(columns):
        folder = "/".join(_folder(name, col[begin]) for name, col in columns.items())
        yield folder, rest.slice(begin, end - begin)
        begin = end


def _ends(columns: dict[str, pa.Array]) -> list[int]:
    from pyarrow import compute, types

    ends: set[int] = set()
    for name, column in columns.items():
        kind = column.type
        if not (
            types.is_string(kind)
            or types.is_large_string(kind)
            or types.is_integer(kind)
            or types.is_date(kind)
            or types.is_boolean(kind)
            or types.is_null(kind)
        ):
            raise BadInput(
                f"{name} is of type {kind}; tables are parted by text, whole "
                "numbers, dates and booleans"
            )
        if types.is_null(kind):
            ends.add(len(column))
        else:
            ends.update(compute.run_end_encode(column).run_ends.to_pylist())
    return sorted(ends)


def _in_store(folder: str) -> str:
    """Return a directory of a Delta table as all readers find it in a store: some know a
    blank, and letters beyond ASCII, in the log's addresses as %XX alone.

    >>> _in_store("day=a%2Fb c/host=ü")
    'day=a%2Fb%20c/host=%C3%BC'
    """
    return quote(folder, safe="%/=")


def _folder(name: str, scalar: pa.Scalar) -> str:
    """Return the directory of a value, as Spark and Hive name it."""
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError) as error:  # a year of no calendar; no UTF-8
        raise BadInput(
            f"a value of {name} cannot name a directory: {error!s:.100}"
        ) from None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if value is None or text == "":
        return f"{name}={NULL}"
    if "\0" in text:
        raise BadInput(f"a value of {name} holds a zero byte: {text!r:.60}")
    folder = f"{name}={_HIDDEN.sub(lambda match: quote(match[0], ''), text)}"
    if len(os.fsencode(folder)) > _LONGEST:
        raise BadInput(
            f"a value of {name} is too long for the name of a directory: {text!r:.60}"
        )
    return folder
