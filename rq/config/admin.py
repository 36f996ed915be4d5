"""What an operator wants of a queue: the files `config/NAME.down` and `.pause`.

That a file is there counts. A pause may say more, as JSON: by whom, why, since when, and
until when; after that it counts no more.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import orjson

from rq import names
from rq.config import files
from rq.files import durable
from rq.layout import Root
from rq.message.fields import WHY_LIMIT
from rq.message.table import LATEST
from rq.words import visible

SUFFIXES = ("down", "pause")
_MOST = 8192  # bytes of a file that are read
_SAME_TIME_NS = 1_000_000_000  # two changes so close may have the same times


class Admin(StrEnum):
    """What the operator wants of a queue."""

    UP = "UP"
    PAUSE = "PAUSE"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a queue; times are epoch seconds."""

    by: str = ""
    why: str = ""
    since: float | None = None
    until: float | None = None


class AdminFiles:
    """What the operator wants of one queue, for who asks all the time: a pause that has
    not changed is not read again, and where there was none, none is looked for until the
    directory changes."""

    def __init__(self, root: Root, name: str) -> None:
        self._directory = str(root.config_dir)
        self._empty: tuple[int, ...] = ()  # the directory, as it was without both files
        self._down = str(root.down(name))
        self._path = root.pause(name)
        self._pause_name = str(self._path)
        self._state: tuple[int, ...] = ()
        self._pause: Pause | None = None

    def read(self, now: float) -> tuple[Admin, Pause | None]:
        """Return what the files say at `now`, in epoch seconds."""
        seen = _state_of(
            self._directory
        )  # before them: what comes meanwhile changes it
        if seen and seen == self._empty:
            return Admin.UP, None
        self._empty = ()
        if os.path.lexists(self._down):
            return Admin.DOWN, None
        pause = self._newest()
        if pause is None:
            self._empty = seen
        if pause is None or _is_over(pause, now):
            return Admin.UP, None
        return Admin.PAUSE, pause

    def _newest(self) -> Pause | None:
        try:
            status = os.lstat(self._pause_name)
        except OSError:
            return None
        try:
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(self._pause_name)
        except OSError:  # it leads nowhere, and is there all the same
            return Pause()
        state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if state != self._state:
            self._pause = _read(self._path)
            old = time.time_ns() - status.st_ctime_ns > _SAME_TIME_NS
            self._state = state if old else ()
        return self._pause


def _state_of(directory: str) -> tuple[int, ...]:
    """Return what changes with every name in a directory; () if that cannot be told."""
    try:
        info = os.stat(directory)
    except OSError:
        return ()
    if time.time_ns() - info.st_ctime_ns <= _SAME_TIME_NS:
        return ()
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


def touched(root: Root) -> frozenset[str]:
    """Return the queues of which there is a file `.down` or `.pause`: of any other all is UP,
    which thousands need not be looked at for."""
    try:
        files = os.listdir(root.config_dir)
    except OSError:
        return frozenset()
    parts = (file.rpartition(".") for file in files)
    return frozenset(name for name, _, suffix in parts if suffix in SUFFIXES)


def admin_status(root: Root, name: str, now: float | None = None) -> Admin:
    """Return what the files `config/NAME.down` and `.pause` say; down beats pause."""
    if os.path.lexists(root.down(name)):
        return Admin.DOWN
    return Admin.UP if pause_of(root, name, now) is None else Admin.PAUSE


def pause_of(root: Root, name: str, now: float | None = None) -> Pause | None:
    """Return the pause of a queue; None: there is none, or it is over."""
    pause = _read(root.pause(name))
    if pause is None or not _is_over(pause, time.time() if now is None else now):
        return pause
    return None


def _is_over(pause: Pause, now: float) -> bool:
    return pause.until is not None and pause.until <= now


def _read(path: Path) -> Pause | None:
    """Return what a file says, and Pause() of one that says nothing, or nothing that can
    be read; None: it is not there."""
    try:
        with path.open("rb") as file:
            data, touched = file.read(_MOST), os.fstat(file.fileno()).st_mtime
    except OSError:
        return Pause() if os.path.lexists(path) else None
    fields = _object(data)
    since, until = _seconds(fields.get("since")), _seconds(fields.get("until"))
    if until is not None and touched > until:
        until = None  # somebody has touched it since: a pause without end
    return Pause(
        by=_line(fields.get("by")),
        why=_line(fields.get("why")),
        since=touched if since is None else since,
        until=until,
    )


def _object(data: bytes) -> dict[str, object]:
    with contextlib.suppress(orjson.JSONDecodeError):
        value = orjson.loads(data)
        return value if isinstance(value, dict) else {}
    return {}


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= LATEST else None


def _line(value: object) -> str:
    return visible.line(value[:WHY_LIMIT]) if isinstance(value, str) else ""


def needed(admin: Admin, name: str) -> str:
    """Return what lets a queue go on that somebody has stopped; "" for one that is UP."""
    verb = {Admin.PAUSE: "resume", Admin.DOWN: "up"}.get(admin)
    return "" if verb is None else f"`rq queue {verb} {name}` lets it go on."


def set_down(root: Root, name: str, wanted: bool) -> None:
    """Make or remove `config/NAME.down`, durably."""
    path = root.down(names.queue_name(name))
    if wanted:
        durable.touch_durable(path)
    else:
        durable.unlink_durable(path)


def pause(root: Root, name: str, wanted: Pause) -> None:
    """Make `config/NAME.pause`, durably; if the queue is paused already and nothing new
    is said, it stays as it is."""
    path = root.pause(names.queue_name(name))
    says_nothing = not wanted.why and wanted.until is None
    if says_nothing and pause_of(root, name) is not None:
        return
    said = {
        "by": wanted.by,
        "why": wanted.why,
        "since": wanted.since,
        "until": wanted.until,
    }
    files.write_state(path, {k: v for k, v in said.items() if v not in ("", None)})


def resume(root: Root, name: str) -> None:
    """Remove `config/NAME.pause`, durably."""
    durable.unlink_durable(root.pause(names.queue_name(name)))


def ends(root: Root) -> dict[str, float]:
    """Return until when queues are paused, by name; the pauses without end are left out."""
    until = {}
    for name in os.listdir(root.config_dir):
        queue = name.removesuffix(".pause")
        if queue != name and names.is_queue_name(queue):
            pause = _read(root.pause(queue))
            if pause is not None and pause.until is not None:
                until[queue] = pause.until
    return until
