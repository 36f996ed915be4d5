"""`rq logs`: what a message's script wrote, and what it writes now."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from rq.cli import ids, owner, place, term
from rq.errors import NoSuchMessage
from rq.layout import JOB, STDIO_LOG, Root
from rq.spool import folders
from rq.states import FINAL, State

_CHUNK = 256 * 1024
_PAUSE = 0.1
_LOST_AFTER = 20  # looks in a row that find the message nowhere


def logs(root: Root, words: list[str]) -> int:
    made = term.parser("logs", "Print the output of a message's script, all attempts.")
    made.add_argument("id", metavar="ID")
    made.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on with what is written, until the message has ended",
    )
    made.add_argument(
        "--tail", type=term.at_least(0), metavar="N", help="the last N lines only"
    )
    made.add_argument("--path", action="store_true", help="print the file's name")
    args = made.parse_args(words)
    with owner.Reader(root) as reader:
        queue, msg_id = ids.resolve(reader, args.id)
        path = log_path(reader, queue, msg_id)
        if args.path:
            print(path)
            return 0
        start = 0 if args.tail is None else _start_of_tail(path, args.tail)
        if args.follow:
            follow(reader, queue, msg_id, start)
        elif path.exists():
            _print_from(path, start)
        else:
            place.note("nothing yet: its script has not run")
    return 0


def log_path(reader: owner.Reader, queue: str, msg_id: str) -> Path:
    """Return where a message's log is, or will be."""
    state = _where(reader, queue, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {queue}")
    return reader.root.queue(queue).message(state, msg_id) / JOB / STDIO_LOG


def follow(reader: owner.Reader, queue: str, msg_id: str, offset: int) -> None:
    """Print the log from `offset` on, across attempts, until the message has ended.

    By file name, not by descriptor: after a crash the file may be another one.
    """
    lost, seen = 0, None
    told = False
    while lost < _LOST_AFTER:
        state = _where(reader, queue, msg_id)
        lost = lost + 1 if state is None else 0
        if state is not None:
            path = reader.root.queue(queue).message(state, msg_id) / JOB / STDIO_LOG
            if (file := _file(path)) != seen:
                offset, seen = (0 if seen and file else offset), file or seen
            more = _print_from(path, offset)
            offset += more
            if state in FINAL and not more and path.parent.parent.is_dir():
                return
            told = (told and not more) or _say_why(reader, queue, msg_id, state)
        if state is not None and state not in FINAL and not reader.online(queue):
            place.note("nobody runs its queue: nothing more will be written")
            return
        time.sleep(_PAUSE)
    raise NoSuchMessage(f"{queue}/{msg_id} was removed")


def _file(path: Path) -> tuple[int, int] | None:
    """Return which file it is: each attempt in a batch has a new one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _where(reader: owner.Reader, queue: str, msg_id: str) -> State | None:
    """The folders come first: they lag behind the owner, and the log is in them."""
    found = folders.find(reader.root.queue(queue), msg_id)
    return found if found is not None else reader.state(queue, msg_id)


def _say_why(reader: owner.Reader, queue: str, msg_id: str, state: State) -> bool:
    if state is State.QUE:
        message = reader.message(queue, msg_id)
        if message.get("state") != State.QUE:
            return False
        why = message.get("story", {}).get("why", "")
        place.note(f"it waits: {term.plain(why)}" if why else "it waits")
        return True
    return False


def _print_from(path: Path, offset: int) -> int:
    """Print a file from a byte on; return how many bytes."""
    try:
        fd = folders.open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    printed = 0
    try:
        while data := os.pread(fd, _CHUNK, offset + printed):
            sys.stdout.buffer.write(data)
            printed += len(data)
    finally:
        os.close(fd)
    if printed:
        sys.stdout.flush()
    return printed


def _start_of_tail(path: Path, lines: int) -> int:
    """Return the offset of the last `lines` lines, read from the end."""
    try:
        with open(folders.open_regular(path), "rb") as file:
            end = file.seek(0, os.SEEK_END)
            if lines == 0:
                return end
            # A newline as the last byte ends the last line and begins none.
            return next(islice(_breaks(file, end - 1), lines - 1, None), -1) + 1
    except FileNotFoundError:
        return 0


def _breaks(file: BinaryIO, end: int) -> Iterator[int]:
    """Yield where the newlines before `end` lie, the last first."""
    while end > 0:
        start = max(0, end - _CHUNK)
        file.seek(start)
        block = file.read(end - start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            yield start + at
        end = start
