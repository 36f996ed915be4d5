"""A large plain file in parts, so that many tasks read it.

A part begins behind a newline and knows the number of its first line: the newlines before
it are counted when the parts are made, which is many times faster than to read them as
lines. What is compressed or far away stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rq.spark import attachments, remote
from rq.spark.attachments import File

PART = 64 * 1024 * 1024  # bytes, about
_BLOCK = 1024 * 1024


def parted(every: Sequence[File], size: int = PART) -> list[File]:
    """Return files, those of more than twice that many bytes in parts."""
    return [part for file in every for part in _parts(file, size)]


def _parts(file: File, size: int) -> list[File]:
    if file.size <= 2 * size or file.where.startswith(remote.ADDRESSES):
        return [file]
    try:
        if attachments.is_compressed(file.where):
            return [file]
        cuts = list(_cuts(file, size))
    except OSError:
        return [file]  # the task that reads it tells why it cannot
    ends = [begin for begin, _ in cuts[1:]]
    return [
        replace(file, size=(end or file.size) - begin, begin=begin, end=end, line=line)
        for (begin, line), end in zip(cuts, [*ends, 0], strict=True)
    ]


def _cuts(file: File, size: int) -> Iterator[tuple[int, int]]:
    """Give where parts begin, and the number of the line that does."""
    yield 0, 1
    at, line, wanted = 0, 1, size
    with Path(file.where).open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            cut = 0
            while cut := block.find(b"\n", max(cut, wanted - at - 1)) + 1:
                if at + cut == file.size:
                    return
                yield at + cut, line + block.count(b"\n", 0, cut)
                wanted = at + cut + size
            line += block.count(b"\n")
            at += len(block)
