"""What a job has found out, as a file; the name's suffixes say of what kind."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rq import names
from rq.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}


def write(
    result: DataFrame | str | bytes | Path, path: Path, at_least: int = 0
) -> int | None:
    """Write a DataFrame, text or bytes, or copy a file, to `path`; return how many rows a
    DataFrame has, None of all else. BadInput when these are not `at_least` so many."""
    names.attachment(path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # never into what a link leads to
    if isinstance(result, Path):
        path.write_bytes(result.read_bytes())
    elif isinstance(result, str):
        path.write_text(result, "utf-8")
    elif isinstance(result, bytes):
        path.write_bytes(result)
    else:
        kind, table = _kind(path), result.toArrow()
        if table.num_rows < at_least:
            raise BadInput(
                f"{path.name} has {table.num_rows:,} rows, at least {at_least:,} were "
                "promised"
            )
        kind(table, path)
        return int(table.num_rows)
    return None


def _kind(path: Path) -> Callable[[pa.Table, Path], None]:
    suffixes = [suffix for suffix in path.suffixes if suffix not in _COMPRESSED]
    writer = _KINDS.get(suffixes[-1] if suffixes else "")
    if writer is None:
        kinds = ", ".join(_KINDS)
        raise BadInput(
            f"{path.name}: a table is written as one of {kinds}, perhaps with .gz"
        )
    return writer


def _csv(table: pa.Table, path: Path, delimiter: str = ",") -> None:
    from pyarrow import csv

    options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    with _stream(path) as stream:
        csv.write_csv(table, stream, options)


def _tsv(table: pa.Table, path: Path) -> None:
    _csv(table, path, "\t")


def _lines(table: pa.Table, path: Path) -> None:
    with _stream(path) as stream:
        for row in table.to_pylist():
            text = json.dumps(row, ensure_ascii=False, default=str)
            stream.write(text.encode() + b"\n")


def _parquet(table: pa.Table, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table, path, compression="zstd")


@contextlib.contextmanager
def _stream(path: Path) -> Iterator[IO[bytes]]:
    import pyarrow as pa

    kind = _COMPRESSED.get(path.suffix)
    with pa.OSFile(str(path), "wb") as file:
        if kind is None:
            yield file
            return
        with pa.CompressedOutputStream(file, kind) as stream:
            yield stream


_KINDS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".parquet": _parquet,
}
