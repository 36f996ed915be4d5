"""Lines of many files as rows: attachments, and what http:// and s3:// lead to.

A task reads a group of files; the first bytes tell the compression, not the name.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import heapq
import http.client
import io
import json
import lzma
import re
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rq.errors import BadInput
from rq.spark.given import Given

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType
    from typing_extensions import Buffer

FORMAT = "rq_lines"
SCHEMA = "msg_id string, src string, file string, lineno long, line string"
REMOTE = ("http://", "https://", "s3://")
_BLOCK = 1024 * 1024
_PATIENCE = 60.0  # seconds without a byte
_GUESS = 16 * 1024 * 1024  # bytes that a file of unknown size is taken for
_LONGEST = 64 * 1024 * 1024  # bytes of a line: more is no text, and would fill memory
# What a file that is not whole, or not what it seems, ends with.
_SPOILED = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    http.client.HTTPException,
)


class _Source(Protocol):
    """What is read from: an answer over HTTP, or a stream of Arrow."""

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""

    def close(self) -> None:
        """Give the connection back."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message."""

    msg_id: str
    src: str
    name: str
    where: str  # a path, or a URL
    size: int


def files(messages: Iterable[Given]) -> list[File]:
    """List the attachments of messages, and what their `param1` leads to."""
    return [file for message in messages for file in _of(message)]


def _of(given: Given) -> Iterator[File]:
    for path in given.attachments:
        size = path.stat().st_size
        yield File(given.msg_id, given.src, path.name, str(path.absolute()), size)
    where = str(given["param1"] or "")
    if where.startswith(REMOTE):
        for name in _under(where):
            yield File(given.msg_id, given.src, name, name, _GUESS)


def _under(where: str) -> list[str]:
    """Return the files that a URL stands for: an s3:// one that ends in a slash, all
    that are below."""
    address, question, query = where.partition("?")
    if not (where.startswith("s3://") and address.endswith("/")):
        return [where]
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(where)
    infos = system.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(info.path for info in infos if info.type == fs.FileType.File)
    return [f"s3://{name}{question}{query}" for name in names]


def rows(spark: SparkSession, every: Sequence[File]) -> DataFrame:
    """Return the lines of files as a DataFrame of SCHEMA."""
    spark.dataSource.register(Lines)
    groups = max(1, spark.sparkContext.defaultParallelism) * 4
    text = json.dumps(
        [[file.msg_id, file.src, file.name, file.where, file.size] for file in every]
    )
    reader = spark.read.format(FORMAT).option("files", text)
    return reader.option("groups", str(groups)).load()


class Lines(DataSource):
    """The source behind `q.lines()`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        every = [File(*fields) for fields in json.loads(self.options["files"])]
        return Reader(every, int(self.options["groups"]))


class Group(InputPartition):
    """The files of one task."""

    def __init__(self, members: Sequence[File]) -> None:
        super().__init__(tuple(members))


class Reader(DataSourceReader):
    """Reads groups of files of about the same size."""

    def __init__(self, every: Sequence[File], groups: int) -> None:
        self.files = every
        self.groups = groups

    def partitions(self) -> Sequence[InputPartition]:
        return [Group(members) for members in grouped(self.files, self.groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for file in partition.value:
            yield from _batches(file)


def grouped(every: Sequence[File], count: int) -> list[list[File]]:
    """Share files out to at most `count` groups: the largest first, to the smallest."""
    heap: list[tuple[int, int, list[File]]] = [
        (0, number, []) for number in range(min(count, len(every)) or 1)
    ]
    for file in sorted(every, key=lambda file: -file.size):
        size, number, group = heapq.heappop(heap)
        group.append(file)
        heapq.heappush(heap, (size + file.size, number, group))
    return [group for _, _, group in sorted(heap)]


def unreadable(error: Exception) -> tuple[str, str] | None:
    """Return (message, why) if an error of Spark tells of a file that cannot be read."""
    parts = re.search(r"BadInput: \[(.+?)\] (.*)", str(error))
    return (parts[1], parts[2]) if parts else None


# ---- reading one


def _batches(file: File) -> Iterator[pa.RecordBatch]:
    """Give the lines of a file as Arrow batches of SCHEMA."""
    import pyarrow as pa

    number = 1
    try:
        with opened(file.where) as stream:
            for lines in _blocks(stream):
                count = len(lines)
                columns = [
                    *(pa.repeat(text, count) for text in (file.msg_id, file.src)),
                    pa.repeat(file.name, count),
                    pa.array(range(number, number + count), pa.int64()),
                    pa.array(lines, pa.string()),
                ]
                yield pa.RecordBatch.from_arrays(
                    columns, ["msg_id", "src", "file", "lineno", "line"]
                )
                number += count
    except _SPOILED as error:
        why = " ".join(str(error).split())
        raise BadInput(f"[{file.msg_id}] {file.name}: {why}") from error


def _blocks(stream: _Source) -> Iterator[list[str]]:
    rest = b""
    while block := stream.read(_BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        if whole:
            yield [_text(line) for line in whole]
        if len(rest) > _LONGEST:
            raise ValueError(f"it has a line of more than {_LONGEST:,} bytes")
    if rest:
        yield [_text(rest)]


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")


@contextlib.contextmanager
def opened(where: str) -> Iterator[_Source]:
    """Open a file, decompressed."""
    with io.BufferedReader(_raw(where), _BLOCK) as raw:
        head = raw.peek(_MAGIC)
        for magic, decompressed in _KINDS:
            if head.startswith(magic):
                with decompressed(raw) as stream:  # which does not close what it reads
                    yield stream
                return
        yield raw


def _raw(where: str) -> io.RawIOBase:
    if where.startswith("s3://"):
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(where)
        return _Readable(system.open_input_stream(path))
    if where.startswith(REMOTE):
        return _Readable(urllib.request.urlopen(where, timeout=_PATIENCE))
    return Path(where).open("rb", buffering=0)


class _Readable(io.RawIOBase):
    """What has only `read`, as the standard library wants it."""

    def __init__(self, stream: _Source) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        data = self._stream.read(len(into))
        # http.client takes a connection that is cut for the end of the file.
        missing = getattr(self._stream, "length", None) if not data else None
        if missing:
            raise EOFError(f"the connection was cut {missing} bytes before the end")
        into[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    import pyarrow as pa

    return cast(
        IO[bytes], pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    )


_KINDS: tuple[
    tuple[bytes, Callable[[IO[bytes]], contextlib.AbstractContextManager[_Source]]],
    ...,
] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)
_MAGIC = max(len(magic) for magic, _ in _KINDS)
