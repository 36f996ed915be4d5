"""What a notice shows of the log of its message: bounded, and clean of controls."""

from __future__ import annotations

import os

from rq.builtin.notice.stories import Story
from rq.errors import NotPlain
from rq.layout import JOB, STDIO_LOG, QueueDir
from rq.spool import folders
from rq.words import visible
from rq.words.states import COUNTED

LINES = 40  # of a log that an err shows
TAIL = 8192  # bytes that these may have
OUTPUT = 65536  # bytes of output that are told whole; of more the two ends


def of(queue: QueueDir, dir_fd: int, story: Story) -> str:
    """Return what is to be shown; "" when there is nothing, or it cannot be read.
    `dir_fd`: the directory of the queue, held open since its settings were read."""
    msg_id = story.text("msg_id")
    for state in COUNTED if msg_id else ():
        file = folders.file_of(queue, state, msg_id, f"{JOB}/{STDIO_LOG}")
        try:
            fd = file.open_at(dir_fd)
        except (OSError, NotPlain):
            continue
        try:
            return _read(fd, story)
        except OSError:
            return ""
        finally:
            os.close(fd)
    return ""


def _read(fd: int, story: Story) -> str:
    size = os.fstat(fd).st_size
    begin, end = _part(story.values.get("printed"), size)
    if story.matter != "output":
        begin = max(begin, end - TAIL)
        return "\n".join(_clean(os.pread(fd, end - begin, begin)).splitlines()[-LINES:])
    if end - begin <= OUTPUT:
        return _clean(os.pread(fd, end - begin, begin))
    half = OUTPUT // 2
    head, tail = os.pread(fd, half, begin), os.pread(fd, half, end - half)
    left = end - begin - OUTPUT
    return f"{_clean(head)}\n[… {left:,} bytes are left out …]\n{_clean(tail)}"


def _part(printed: object, size: int) -> tuple[int, int]:
    """Return which bytes of a log an attempt has printed; all, if that is not known."""
    if isinstance(printed, list) and len(printed) == 2:
        begin, end = printed
        if isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end:
            return min(begin, size), min(end, size)
    return 0, size


def _clean(written: bytes) -> str:
    return visible.uncoloured(written.decode(errors="replace")).strip("\n")
