"""Files as they are read: opened here or fetched, decompressed.

The first bytes tell the compression, not the name.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from rq.spark import remote
from rq.spark.remote import Allow, Source

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 1024 * 1024


def is_compressed(path: str) -> bool:
    """Whether a file is one of those that `opened` decompresses; OSError."""
    with Path(path).open("rb") as file:
        return file.read(_MAGIC).startswith(tuple(magic for magic, _ in _KINDS))


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


class _Decompressor(Protocol):
    """One of bz2 or lzma, for one stream of a file."""

    @property
    def eof(self) -> bool:
        """Whether the stream is over."""

    @property
    def unused_data(self) -> bytes:
        """What stood behind it in the last bytes."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return what comes of some bytes, and of those before them."""


class _Streams(io.RawIOBase):
    """Streams of bz2 or xz, one behind the other. The readers of the standard library
    pass over what else stands behind them: bytes of a file that is not whole."""

    def __init__(self, raw: IO[bytes], begin: Callable[[], _Decompressor]) -> None:
        self._raw, self._begin = raw, begin
        self._stream, self._data = begin(), b""
        self._count = 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        while not self._stream.eof or self._another():
            data = self._decompress(len(into))
            if data:
                into[: len(data)] = data
                return len(data)
        return 0

    def _decompress(self, size: int) -> bytes:
        try:
            if data := self._stream.decompress(self._data, size):
                self._data = b""
                return data
        except (OSError, lzma.LZMAError):
            if self._count == 1:
                raise
            raise ValueError("there are other bytes behind its end") from None
        self._data = b""
        if not self._stream.eof:
            self._data = self._raw.read(_BLOCK)
            if not self._data:
                raise EOFError("it ends in the middle: it is not whole")
        return b""

    def _another(self) -> bool:
        """Begin the next stream; zeros between and behind them are padding."""
        data = self._stream.unused_data
        rest = data.lstrip(b"\0")
        while not rest and (data := self._raw.read(_BLOCK)):
            rest = data.lstrip(b"\0")
        if rest:
            self._stream, self._data = self._begin(), rest
            self._count += 1
        return bool(rest)


_KINDS: tuple[
    tuple[bytes, Callable[[IO[bytes]], contextlib.AbstractContextManager[Source]]],
    ...,
] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"BZh", lambda raw: _Streams(raw, bz2.BZ2Decompressor)),
    (b"\xfd7zXZ\0", lambda raw: _Streams(raw, lzma.LZMADecompressor)),
)
_MAGIC = max(len(magic) for magic, _ in _KINDS)
