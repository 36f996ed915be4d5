"""What a parked queue leaves to be read: its answers, and how its directories looked.

A queue without a process is asked nothing as long as this file tells what it would answer.
That holds while everything lies as the queue has left it; once a directory, its config or
an admin file looks different, whoever asks connects, and so starts the queue. The file is a
cache: it is gone as soon as a process owns the queue again, and no start believes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from rq import __version__
from rq.config import files
from rq.files import durable
from rq.layout import JOURNAL, STATE_DIRS, QueueDir, Root

WORD = "PARKED "  # says a queue to its supervisor, with when it is to be woken

Stamp: TypeAlias = list[int]
Answer: TypeAlias = Sequence[Any] | Mapping[str, Any]
LOOKED_AT = (*STATE_DIRS, "new", JOURNAL, "config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where the journal of a queue ended when it was parked, and how the name of its socket
    looks. The supervisor keeps it, since numbers of inodes come again, a copy brings its own
    file, and a full disk has none: where another end lies, the queue starts as after a hand's
    edit, and where another socket lies, it binds its own."""

    journal: str
    seq: int
    socket: Stamp

    @property
    def place(self) -> tuple[str, int]:
        return self.journal, self.seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Listens:
    """What a queue starts with that was parked."""

    fd: int  # its socket
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """What a queue says with its socket."""

    wakes_at: float | None
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """How a queue was when its process ended."""

    at: float  # epoch seconds
    after: float  # seconds with nothing to do, after which it was parked
    wakes_at: float | None
    retained_at: float  # epoch seconds: when old messages were looked for
    boot: str  # of the machine
    journal: str
    seq: int
    socket: Stamp
    stamps: Mapping[str, Stamp]
    answers: Mapping[str, Answer]  # by the words of commands
    version: str = __version__  # of RQ: another one may answer otherwise

    @property
    def end(self) -> End:
        return End(journal=self.journal, seq=self.seq, socket=self.socket)


def write(queue: QueueDir, parked: Parked) -> None:
    """Leave it."""
    files.write_cache(queue.parked, asdict(parked))


def leave(queue: QueueDir, parked: Parked) -> None:
    """Leave it, if there is room; else the queue is parked all the same, and who asks
    starts it."""
    durable.crash_point("park:stopped")
    with contextlib.suppress(OSError):
        write(queue, parked)
    durable.crash_point("park:written")


def hand_over(line: socket.socket, listener: socket.socket, left: Parked) -> None:
    """Give the supervisor the listening socket of a queue that ends now, and say when it is
    to be started at the latest; OSError: the supervisor is gone."""
    handing = HandedOver(wakes_at=left.wakes_at, end=left.end)
    word = WORD + json.dumps(asdict(handing))
    socket.send_fds(line, [word.encode()], [listener.fileno()])
    durable.crash_point("park:handed-over")


def handed_over(word: str) -> HandedOver:
    """Return what a queue says with its socket."""
    facts = json.loads(word.removeprefix(WORD))
    return HandedOver(wakes_at=facts["wakes_at"], end=End(**facts["end"]))


def read(queue: QueueDir) -> Parked | None:
    """Return what a queue has left; None: nothing that can be used."""
    try:
        # Of RQ's own writing, and read of thousands: it needs no checks as a config does.
        with open(f"{queue.path}/{queue.parked.name}", "rb") as file:
            parked = Parked(**orjson.loads(file.read()))
    except (OSError, ValueError, TypeError):
        return None
    return parked if parked.version == __version__ else None


def wakes() -> None:
    """Pass the moment before a queue that was parked says that it serves."""
    durable.crash_point("park:woken")


def forget(queue: QueueDir) -> None:
    """Let it be read no more: a process owns the queue, and serves."""
    with contextlib.suppress(OSError):
        files.remove_name(queue.parked)


def stamps(root: Root, name: str) -> dict[str, Stamp]:
    """Return how all looks that a person may change while a queue is parked."""
    place = str(root.queue(name).path)
    looks = {each: stamp(f"{place}/{each}") for each in LOOKED_AT}
    return {**looks, "down": stamp(root.down(name)), "pause": stamp(root.pause(name))}


def stamp(path: str | Path) -> Stamp:
    """Return how a file or directory looks; empty: there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return []
    return [about.st_dev, about.st_ino, about.st_mtime_ns, about.st_ctime_ns]


def is_current(root: Root, name: str) -> bool:
    """Whether what a parked queue has left can be read, and all lies as it has left it."""
    parked = read(root.queue(name))
    return parked is not None and _is_as_left(root, name, parked)


def _is_as_left(root: Root, name: str, parked: Parked) -> bool:
    """Whether all lies as a queue has left it, and nothing in new/: what came there just
    before it noted how that looks was not taken, and is in its stamp. Nor is its time over:
    the supervisor counts seconds, also when the clock of the machine is set, or it sleeps."""
    if parked.wakes_at is not None and time.time() >= parked.wakes_at:
        return False
    if stamps(root, name) != parked.stamps:
        return False
    try:
        with os.scandir(root.queue(name).path / "new") as there:
            return next(there, None) is None
    except OSError:
        return False


def as_stopped(root: Root, name: str, boot: str) -> Parked | None:
    """Return how a queue was parked when RQ stopped, if that still says all: its directories
    are as it left them, and the machine has run since; None: it has to start."""
    parked = read(root.queue(name))
    if parked is None or parked.boot != boot:
        return None
    return parked if _is_as_left(root, name, parked) else None


def listens_anew(queue: QueueDir, parked: Parked) -> End:
    """Return where a parked queue ended whose socket is another one by now. Its file is not
    written again, of thousands at a start: the supervisor knows."""
    return replace(parked.end, socket=stamp(queue.socket))


def answer(root: Root, name: str, command: str) -> Answer | None:
    """Return what a parked queue answers; None: it has to be asked."""
    parked = read(root.queue(name))
    if parked is None or command not in parked.answers:
        return None
    return parked.answers[command] if _is_as_left(root, name, parked) else None
