"""Lines of files: attachments, and what http:// and s3:// lead to.

The first bytes tell the compression, not the name; and those of the text its encoding.
"""

from __future__ import annotations

import codecs
import contextlib
import heapq
import io
import itertools
import lzma
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import quote, unquote

from rq import names
from rq.errors import BadInput, RQError, Unreachable
from rq.spark import compression, remote, schemas
from rq.spark.given import Given
from rq.spark.remote import Allow, Source
from rq.words import visible

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ["msg_id", "src", "file", "lineno", "line"]
_BLOCK = 1024 * 1024
_GUESS = 16 * 1024 * 1024  # bytes that a file of unknown size is taken for
_HEAD = 64  # bytes that tell the encoding of a text
_REPLACEMENT = "\ufffd"
# Those of UTF-32 first: they begin as those of UTF-16 do.
_MARKS = (
    (codecs.BOM_UTF8, ""),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
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

    @property
    def whole(self) -> tuple[str, str]:
        """What all parts of a file share, and no other file."""
        return self.msg_id, self.where


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
    where = _named(given)
    if remote.is_address(where):
        remote.demand_known(where)
        for name in remote.below(where, may):
            yield File(given.msg_id, given.src, name, name, _GUESS)


def empty(messages: Iterable[Given]) -> list[Bad]:
    """Return the messages that bring nothing to be read: no attachment, no address."""
    why = (
        "it has no attachment, and no address in param1: nothing to read; a job may take "
        "such messages by q.lines(allow_empty=True)"
    )
    return [
        Bad(message.msg_id, why, is_passing=False)
        for message in messages
        if not (message.attachments or remote.is_address(_named(message)))
    ]


def _named(given: Given) -> str:
    return remote.address(str(given["param1"] or ""))


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

    number, whose = file.line, Whose(file)
    try:
        with _opened(file, may) as stream:
            for lines in _blocks(stream, is_start=not file.begin):
                count = len(lines)
                numbers = schemas.numbers(number, count)
                rows = pa.RecordBatch.from_arrays([numbers, lines], COLUMNS[-2:])
                yield whose.rows(rows)
                number += count
    except _SPOILED as error:
        raise _bad(file.msg_id, file.name, error).error() from error


class Whose:
    """Columns that say of which file rows are: made once, for many batches."""

    def __init__(self, file: File) -> None:
        self._texts = (file.msg_id, file.src, file.name)
        self._columns: list[pa.Array] = []
        self._count = 0

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows behind these columns."""
        import pyarrow as pa

        count = rows.num_rows
        if not self._columns or self._count < count:
            self._count = count + count // 4  # the next ones may be a few more
            self._columns = [pa.repeat(text, self._count) for text in self._texts]
        whose = [column.slice(0, count) for column in self._columns]
        names = [*COLUMNS[: len(self._texts)], *rows.schema.names]
        return pa.RecordBatch.from_arrays([*whose, *rows.columns], names)


@contextlib.contextmanager
def seekable(file: File, may: Allow) -> Iterator[BinaryIO]:
    """Open a file, decompressed, at any place of which can be read; what is fetched lies
    in the working directory meanwhile. BadInput or Unreachable, as above."""
    try:
        with contextlib.ExitStack() as stack:
            if remote.is_address(file.where) or compression.is_compressed(file.where):
                space = tempfile.TemporaryFile(dir=".")  # noqa: SIM115 - the stack closes it
                data = cast(BinaryIO, stack.enter_context(space))
                with compression.opened(file.where, may) as stream:
                    for piece in _pieces(stream):
                        data.write(piece)
                data.seek(0)
            else:
                data = stack.enter_context(Path(file.where).open("rb"))
            yield data
    except _SPOILED as error:
        raise _bad(file.msg_id, file.name, error).error() from error


@contextlib.contextmanager
def whole(file: File, may: Allow, encoding: str) -> Iterator[Iterator[bytes]]:
    """Open a file, or a part, as pieces of UTF-8; `encoding`: its own, nothing if its first bytes
    say it. BadInput or Unreachable, which `unreadable` reads, when that cannot be."""
    try:
        with _opened(file, may) as stream:
            texts = _pieces if encoding or file.begin else _texts
            yield _decoded(texts(stream), encoding) if encoding else texts(stream)
    except _SPOILED as error:
        raise _bad(file.msg_id, file.name, error).error() from error


def checked(file: File, may: Allow) -> Iterator[pa.RecordBatch]:
    """Give a row if a file cannot be read to its end."""
    try:
        with compression.opened(file.where, may) as stream:
            for _ in _blocks(stream):
                pass
    except _SPOILED as error:
        yield row_of(_bad(file.msg_id, file.name, error))


def row_of(bad: Bad) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [[bad.msg_id], [bad.why], [bad.is_passing]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column) for column in columns], ["msg_id", "why", "passing"]
    )


def _blocks(stream: Source, is_start: bool = True) -> Iterator[pa.Array]:
    """Give the lines of a stream, some at a time; `is_start`: it begins with the bytes
    that tell its encoding."""
    rest = b""
    for block in _texts(stream) if is_start else _pieces(stream):
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


def _pieces(stream: Source) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def _texts(stream: Source) -> Iterator[bytes]:
    """Give what a stream has as UTF-8, without the mark at its beginning."""
    pieces = _pieces(stream)
    head = b""
    while len(head) < _HEAD and (block := next(pieces, b"")):
        head += block
    mark, encoding = _encoding(head)
    first = head[len(mark) :]
    if not encoding:
        yield from filter(None, itertools.chain([first], pieces))
        return
    yield from _decoded(itertools.chain([first], pieces), encoding)


def _decoded(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in pieces:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _encoding(head: bytes) -> tuple[bytes, str]:
    """Return the mark of its order that a text begins with, and its encoding, nothing for
    UTF-8. UTF-16 without a mark is known by the zeros between ASCII."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return mark, encoding
    even, odd = head[:_HEAD:2], head[1:_HEAD:2]
    if odd and not any(odd) and all(even):
        return b"", "utf-16-le"
    if odd and not any(even) and all(odd):
        return b"", "utf-16-be"
    return b"", ""


def is_utf8(path: str) -> bool:
    """Whether a plain file is of bytes that can be cut at any newline; OSError."""
    with Path(path).open("rb") as file:
        return not _encoding(file.read(_HEAD))[1]


def replaced(rows: pa.RecordBatch) -> int:
    """Return how many lines, or rows, hold U+FFFD, which stands for bytes that are no
    text."""
    import pyarrow as pa
    from pyarrow import compute

    holds = [
        compute.fill_null(compute.match_substring(column, _REPLACEMENT), False)
        for column, kind in zip(rows.columns[3:], rows.schema.types[3:], strict=True)
        if pa.types.is_string(kind) and schemas.may_hold(column, _REPLACEMENT)
    ]
    return int(compute.sum(reduce(compute.or_, holds)).as_py() or 0) if holds else 0


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


@contextlib.contextmanager
def _opened(file: File, may: Allow) -> Iterator[Source]:
    if not file.is_part:
        with compression.opened(file.where, may) as stream:
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
