"""Large plain files in parts, so that many tasks or threads read one.

A part begins behind a newline and knows the number of its first line: the newlines before
it are counted when the parts are made, which is many times faster than to read the rows.
On the same pass a layout looks whether a row may go on behind the end of its line; then a
file stays whole, for where a part could begin only its reader knows.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rq.spark import attachments, compression, remote
from rq.spark.attachments import File
from rq.spark.layouts import Layout
from rq.spark.texts import Lines

SIZE = 64 * 1024 * 1024  # bytes of a part, about
_BLOCK = 1024 * 1024
_LONGEST = 64 * 1024 * 1024  # bytes of a line: behind it nothing is cut


class _Whole(Exception):
    """A file cannot be read from any line on."""


def parted(every: Sequence[File], layout: Layout, size: int = 0) -> list[File]:
    """Return files, those of more than twice that many bytes in parts."""
    size = size or SIZE
    return [part for file in every for part in _parts(file, layout, size)]


def _parts(file: File, layout: Layout, size: int) -> list[File]:
    if file.size <= 2 * size or file.where.startswith(remote.ADDRESSES):
        return [file]
    lines = layout.lines()
    if lines is None:
        return [file]
    try:
        if compression.is_compressed(file.where) or not attachments.is_utf8(file.where):
            return [file]
        cuts = list(_cuts(file, size, lines))
    except (OSError, _Whole):
        return [file]  # the task that reads it tells why it cannot
    ends = [begin for begin, _ in cuts[1:]]
    return [
        replace(file, size=(end or file.size) - begin, begin=begin, end=end, line=line)
        for (begin, line), end in zip(cuts, [*ends, 0], strict=True)
    ]


def _cuts(file: File, size: int, lines: Lines) -> Iterator[tuple[int, int]]:
    """Give where parts begin, and the number of the line that does."""
    yield 0, 1
    at, line, wanted = 0, 1, size
    for text in _whole_lines(file):
        if not at:
            wanted = max(wanted, lines.begin(text))
        if not lines.are_rows(text if at else text.removeprefix(codecs.BOM_UTF8)):
            raise _Whole
        cut = 0
        while cut := text.find(b"\n", max(cut, wanted - at - 1)) + 1:
            if at + cut == file.size:
                return
            yield at + cut, line + text.count(b"\n", 0, cut)
            wanted = at + cut + size
        line += text.count(b"\n")
        at += len(text)


def _whole_lines(file: File) -> Iterator[bytes]:
    """Give the lines of a file, some at a time; the last may have no end."""
    rest = b""
    with Path(file.where).open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            lines, newline, after = block.rpartition(b"\n")
            if newline:
                yield rest + lines + newline
                rest = after
            else:
                rest += after
            if len(rest) > _LONGEST:
                raise _Whole
    if rest:
        yield rest
