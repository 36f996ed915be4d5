"""Lines of files: attachments, and what http:// and s3:// lead to.

The first bytes tell the compression, not the name.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import heapq
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast
from urllib.parse import quote, unquote

from rq import names
from rq.errors import BadInput, RQError, Unreachable
from rq.spark import remote
from rq.spark.given import Given
from rq.spark.remote import Allow, Source
from rq.words import visible

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

COLUMNS = ["msg_id", "src", "file", "lineno", "line"]
_BLOCK = 1024 * 1024
_GUESS = 16 * 1024 * 1024  # bytes that a file of unknown size is taken for
_LONGEST = 64 * 1024 * 1024  # bytes of a line: more is no text, and would fill memory
# What a file that is not whole, or not what it seems, ends with.
_SPOILED = (
    RQError,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message."""

    msg_id: str
    src: str
    name: str
    where: str  # a path, or a URL
    size: int
    # Of a part of a file:
    begin: int = 0
    end: int = 0  # 0: that of the file
    line: int = 1  # the number of its first line

    @property
    def is_part(self) -> bool:
        return self.begin > 0 or self.end > 0


@dataclass(frozen=True, slots=True)
class Bad:
    """A message one of whose files cannot be read, and why."""

    msg_id: str
    why: str
    is_passing: bool  # it may be there a while later

    def error(self) -> RQError:
        """Return it as it is raised; `unreadable` reads it again."""
        kind = Unreachable if self.is_passing else BadInput
        return kind(f"[{quote(self.msg_id)}] {self.why}")


def files(messages: Iterable[Given], allow: Sequence[str]) -> list[File]:
    """List the attachments of messages, and what their `param1` leads to. `allow`: where
    the queue may go. BadInput or Unreachable tells of the first that leads nowhere."""
    every, bad = listed(messages, allow)
    if bad:
        raise bad[0].error()
    return every


def listed(
    messages: Iterable[Given], allow: Sequence[str]
) -> tuple[list[File], list[Bad]]:
    """Return the files of messages, and the messages that have no list of them."""
    may, every, bad = remote.allow(allow), list[File](), list[Bad]()
    for message in messages:
        name = "its attachments"
        try:
            attached = list(_attached(message))
            name = str(message["param1"])
            every += [*attached, *_fetched(message, may)]
        except _SPOILED as error:
            bad.append(_bad(message.msg_id, name, error))
    return every, bad


def _attached(given: Given) -> Iterator[File]:
    for path in given.attachments:
        # Neither engine has a text that such bytes could be: a message that brings them
        # must not end those of its batch.
        if not names.is_text(path.name):
            raise BadInput(f"the name of {path.name!r} is no UTF-8: rename the file")
        size = path.stat().st_size
        yield File(given.msg_id, given.src, path.name, str(path.absolute()), size)


def _fetched(given: Given, may: Allow) -> Iterator[File]:
    where = remote.address(str(given["param1"] or ""))
    if where.startswith(remote.ADDRESSES):
        for name in remote.below(where, may):
            yield File(given.msg_id, given.src, name, name, _GUESS)


def _bad(msg_id: str, name: str, error: BaseException) -> Bad:
    why = " ".join(str(error).split())
    return Bad(msg_id, visible.line(f"{name}: {why}"), remote.is_passing(error))


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


def unreadable(error: Exception) -> Bad | None:
    """Return which message it is about if an error tells of a file that cannot be read,
    in this process or in a task of Spark."""
    name = f"{type(error).__name__}: " if isinstance(error, RQError) else ""
    parts = re.search(r"\b(BadInput|Unreachable): \[(.+?)\] (.*)", f"{name}{error}")
    if parts is None:
        return None
    return Bad(unquote(parts[2]), parts[3], parts[1] == Unreachable.__name__)


# ---- reading one


def schema() -> pa.Schema:
    """Return what `batches` gives."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema(zip(COLUMNS, (text, text, text, pa.int64(), text), strict=True))


def batches(file: File, may: Allow) -> Iterator[pa.RecordBatch]:
    """Give the lines of a file as Arrow batches: msg_id, src, file, lineno, line.
    BadInput or Unreachable, which `unreadable` reads, when that cannot be."""
    import pyarrow as pa

    number = file.line
    try:
        with _opened(file, may) as stream:
            for lines in _blocks(stream):
                count = len(lines)
                columns = [
                    *(pa.repeat(text, count) for text in (file.msg_id, file.src)),
                    pa.repeat(file.name, count),
                    pa.array(range(number, number + count), pa.int64()),
                    lines,
                ]
                yield pa.RecordBatch.from_arrays(columns, COLUMNS)
                number += count
    except _SPOILED as error:
        raise _bad(file.msg_id, file.name, error).error() from error


def checked(file: File, may: Allow) -> Iterator[pa.RecordBatch]:
    """Give a row if a file cannot be read to its end."""
    import pyarrow as pa

    try:
        with opened(file.where, may) as stream:
            for _ in _blocks(stream):
                pass
    except _SPOILED as error:
        bad = _bad(file.msg_id, file.name, error)
        columns = [[bad.msg_id], [bad.why], [bad.is_passing]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column) for column in columns], ["msg_id", "why", "passing"]
        )


def _blocks(stream: Source) -> Iterator[pa.Array]:
    """Give the lines of a stream, some at a time."""
    rest = b""
    while block := stream.read(_BLOCK):
        whole, newline, after = block.rpartition(b"\n")
        if newline:
            yield _lines(rest + whole)
            rest = after
        else:
            rest += after
        if len(rest) > _LONGEST:
            raise ValueError(f"it has a line of more than {_LONGEST:,} bytes")
    if rest:
        yield _lines(rest)


def _lines(text: bytes) -> pa.Array:
    """Return the lines of a text; Arrow splits what is UTF-8 and has no \\r many times
    faster than Python."""
    import pyarrow as pa
    from pyarrow import compute

    if b"\r" not in text:
        parts = compute.split_pattern(pa.array([text], pa.binary()), b"\n").flatten()
        with contextlib.suppress(pa.ArrowInvalid):  # it is not UTF-8
            return parts.cast(pa.string())
    return pa.array([_text(line) for line in text.split(b"\n")], pa.string())


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")


def is_compressed(path: str) -> bool:
    """Whether a file is one of those that `opened` decompresses; OSError."""
    with Path(path).open("rb") as file:
        return file.read(_MAGIC).startswith(tuple(magic for magic, _ in _KINDS))


@contextlib.contextmanager
def _opened(file: File, may: Allow) -> Iterator[Source]:
    if not file.is_part:
        with opened(file.where, may) as stream:
            yield stream
        return
    with Path(file.where).open("rb", buffering=0) as raw:
        raw.seek(file.begin)
        yield _Part(raw, file.end - file.begin) if file.end else raw


class _Part:
    """The next bytes of a file, as many as there are said to be."""

    def __init__(self, raw: io.FileIO, left: int) -> None:
        self._raw = raw
        self._left = left

    def read(self, size: int) -> bytes:
        data = self._raw.read(min(size, self._left)) or b""
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._raw.close()


@contextlib.contextmanager
def opened(where: str, may: Allow | None = None) -> Iterator[Source]:
    """Open a file, decompressed."""
    with io.BufferedReader(_raw(where, may or Allow()), _BLOCK) as raw:
        head = raw.peek(_MAGIC)
        for magic, decompressed in _KINDS:
            if head.startswith(magic):
                with decompressed(raw) as stream:  # which does not close what it reads
                    yield stream
                return
        yield raw


def _raw(where: str, may: Allow) -> io.RawIOBase:
    if where.startswith(remote.ADDRESSES):
        return _Readable(remote.stream(where, may))
    return Path(where).open("rb", buffering=0)


class _Readable(io.RawIOBase):
    """What has only `read`, as the standard library wants it."""

    def __init__(self, stream: Source) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        data = self._stream.read(len(into))
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
    tuple[bytes, Callable[[IO[bytes]], contextlib.AbstractContextManager[Source]]],
    ...,
] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)
_MAGIC = max(len(magic) for magic, _ in _KINDS)
