"""`rq logs`: what a message's script wrote, and what it writes now."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from rq.cli import ids, owner, place, term, terminal
from rq.errors import BadInput, NoSuchMessage, OutcomeUnknown, Unreachable
from rq.layout import JOB, STDIO_LOG, Root
from rq.proc import holes
from rq.replies import MessageView
from rq.spool import attempts_kept, folders
from rq.spool.folders import File
from rq.words.states import FINAL, State

_CHUNK = 256 * 1024
_PAUSE = 0.1
Write = Callable[[bytes], None]
_LOST_AFTER = 20  # looks in a row that find the message nowhere
_AWAY = 300  # looks in a row that find no owner, where a supervisor runs
_AGAIN = 4096  # bytes that are printed again when the middle was taken out
_QUIET = 50  # looks in a row that find nothing new, before the owner is asked why


def logs(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "logs", "Print what a message's script has written, in all attempts."
    )
    parser.add_argument("id", metavar="ID", help=term.ID)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="print what is written from now on, too, until the message has ended",
    )
    parser.add_argument(
        "--tail", type=term.at_least(0), metavar="N", help="print the last N lines only"
    )
    term.flag(
        parser,
        "--raw",
        "print the bytes as they are, also those that may harm a terminal",
    )
    term.flag(parser, "--path", "print the name of the log file")
    parser.add_argument(
        "--attempt",
        type=term.at_least(1),
        metavar="N",
        help="print the part of this attempt only",
    )
    args = parser.parse_args(words)
    with owner.Reader(root) as reader:
        queue, msg_id = ids.resolve(reader, args.id)
        if args.attempt is not None:
            _print_attempt(reader, queue, msg_id, args)
            return 0
        file = _log(reader, queue, msg_id)
        if args.path:
            print(f"{file.queue.path}/{file.path}")
            return 0
        start = 0 if args.tail is None else _start_of_tail(file, args.tail)
        if args.follow:
            follow(reader, queue, msg_id, start, raw=args.raw)
        elif _identity(file) is not None:
            with terminal.output(raw=args.raw) as write:
                _print_from(file, start, write)
        else:
            term.note("there is no output yet: its script has not run")
    return 0


def _print_attempt(
    reader: owner.Reader, queue: str, msg_id: str, args: argparse.Namespace
) -> None:
    """Print what one attempt has written."""
    if args.follow or args.tail is not None or args.path:
        raise BadInput(
            "--attempt prints a part of the log: say it without -f, --tail, --path"
        )
    kept = reader.attempts(queue, msg_id)["attempts"]
    part = attempts_kept.part_of(kept, args.attempt)
    state = _where(reader, queue, msg_id)
    if part is None or state is None:
        raise NoSuchMessage(attempts_kept.why_none(kept, args.attempt))
    inner = f"{JOB}/{part.file}"
    file = folders.file_of(reader.root.queue(queue), state, msg_id, inner)
    with terminal.output(raw=args.raw) as write:
        _print_from(file, part.begin, write, part.end)


def log_path(reader: owner.Reader, queue: str, msg_id: str) -> Path:
    """Return where a message's log is, or will be."""
    file = _log(reader, queue, msg_id)
    return file.queue.path / file.path


def _log(reader: owner.Reader, queue: str, msg_id: str) -> File:
    state = _where(reader, queue, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no message {msg_id} in queue {queue}")
    return _log_in(reader, queue, msg_id, state)


def _log_in(reader: owner.Reader, queue: str, msg_id: str, state: State) -> File:
    inner = f"{JOB}/{STDIO_LOG}"
    return folders.file_of(reader.root.queue(queue), state, msg_id, inner)


def follow(
    reader: owner.Reader, queue: str, msg_id: str, offset: int, *, raw: bool = False
) -> None:
    """Print the log from `offset` on, across attempts, until the message has ended."""
    with terminal.output(raw=raw) as write:
        _follow(reader, (queue, msg_id), offset, write)


def _follow(
    reader: owner.Reader, message: tuple[str, str], offset: int, write: Write
) -> None:
    """By file name, not by descriptor: after a crash the file may be another one."""
    queue, msg_id = message
    lost, quiet, away, seen = 0, 0, 0, None
    explained = False
    while lost < _LOST_AFTER:
        state = _where(reader, queue, msg_id)
        lost = lost + 1 if state is None else 0
        if state is not None:
            file = _log_in(reader, queue, msg_id, state)
            if (now := _identity(file)) != seen:
                offset, seen = (0 if seen and now else offset), now or seen
            more = _print_from(file, offset, write)
            offset += more
            quiet = 0 if more else quiet + 1
            if state in FINAL and not more and _is_there(reader, queue, msg_id, state):
                return
            explained = (explained and not more) or _say_why(
                reader, queue, msg_id, state
            )
        if state is None or state in FINAL or reader.online(queue):
            away = 0
        elif (away := away + 1) < _AWAY and place.is_running(reader.root):
            reader.forget(queue)  # it is started again
        else:
            term.note("its queue is not running: nothing more will be written")
            return
        if quiet and quiet % _QUIET == 0 and _is_held(reader, queue, msg_id):
            return
        time.sleep(_PAUSE)
    raise NoSuchMessage(f"{queue}/{msg_id} was removed")


def _is_held(reader: owner.Reader, queue: str, msg_id: str) -> bool:
    """Say so when a message has ended and its folder cannot be moved, as on a full disk:
    its log stays where it is, and it is not known for how long."""
    try:
        why = reader.stuck(queue)
        if why is None or reader.state(queue, msg_id) not in FINAL:
            return False
    except (OutcomeUnknown, Unreachable):  # it stands still: its script may not
        return False
    term.note(
        f"it has ended; folders of {queue} cannot be moved now: {term.plain(why)}"
    )
    return True


def _is_there(reader: owner.Reader, queue: str, msg_id: str, state: State) -> bool:
    return reader.root.queue(queue).message(state, msg_id).is_dir()


def _identity(file: File) -> tuple[int, int] | None:
    """Return which file it is: each attempt in a batch has a new one."""
    try:
        fd = file.open()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return status.st_dev, status.st_ino


def _where(reader: owner.Reader, queue: str, msg_id: str) -> State | None:
    """The folders come first: they lag behind the owner, and the log is in them."""
    state = folders.find(reader.root.queue(queue), msg_id)
    return state if state is not None else reader.state(queue, msg_id)


def _say_why(reader: owner.Reader, queue: str, msg_id: str, state: State) -> bool:
    if state is State.QUE:
        message = reader.message(queue, msg_id)
        if message.get("state") != State.QUE:
            return False
        term.note(term.plain(f"it waits: {_why(message)}".rstrip(": ")))
        return True
    return False


def _why(message: MessageView) -> str:
    """Return why a message waits, and what a person has to do before it can start."""
    story = message.get("story")
    if story is None:
        return ""
    passes = story["todo"].startswith("Nothing")
    return story["why"] if passes else f"{story['why']} {story['todo']}"


def _print_from(file: File, offset: int, write: Write, end: int | None = None) -> int:
    """Print a file from a byte on, perhaps up to `end`; return how many bytes further to
    go on. With `log_bytes` the middle is taken out at the end of an attempt: then it is
    further back, for some lines are printed again."""
    try:
        fd = file.open()
    except (FileNotFoundError, NotADirectoryError):
        return 0
    at = offset
    try:
        if (size := os.fstat(fd).st_size) < at:
            term.note("the middle of this log was left out; its last lines:")
            at = max(0, size - _AGAIN)
        while end is None or at < end:
            after = holes.next_data(fd, at)
            if after > at:  # the middle of a log with `log_bytes`
                write(b"\n[%d bytes are left out here]\n" % (after - at))
                at = after
            length = max(0, holes.next_hole(fd, at) - at)
            if end is not None:
                length = min(length, max(0, end - at))
            data = os.pread(fd, min(_CHUNK, length), at)
            if not data:
                break
            write(data)
            at += len(data)
    finally:
        os.close(fd)
    return at - offset


def _start_of_tail(log: File, lines: int) -> int:
    """Return the offset of the last `lines` lines, read from the end."""
    try:
        with open(log.open(), "rb") as file:
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
