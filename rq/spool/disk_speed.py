"""The speed of a disk at what the spool does, measured for `rq doctor`."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rq.files import durable

_SECONDS = 0.7  # per measurement
_LINE = b"x" * 511 + b"\n"
_SEGMENT = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Latencies in seconds, rates per second."""

    sync_p50: float  # a line into a zero-filled segment, and fdatasync
    sync_p99: float
    append_p50: float  # the same into a file that grows
    folders: float  # made, each with its msg


def measure(root: Path, seconds: float = _SECONDS) -> Speed:
    """Return the speed of the file system of `root`, in a directory of its own there."""
    work = tempfile.mkdtemp(prefix=".doctor-", dir=root)
    try:
        zeros = durable.zero_filled(f"{work}/zeros", _SEGMENT)
        synced = _sync_times(zeros, _SEGMENT, seconds)
        growing = os.open(f"{work}/growing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        appended = _sync_times(growing, None, seconds)
        return Speed(
            sync_p50=statistics.median(synced),
            sync_p99=sorted(synced)[int(len(synced) * 0.99)],
            append_p50=statistics.median(appended),
            folders=_rate(lambda n: _folder(f"{work}/{n}"), seconds),
        )
    finally:
        durable.remove_tree(work)


def _sync_times(fd: int, size: int | None, seconds: float) -> list[float]:
    """Write and sync line after line; within `size` bytes, or growing without end."""
    times: list[tuple[float, float]] = []
    try:
        deadline = time.perf_counter() + seconds
        while not times or times[-1][1] < deadline:
            at = len(times) * len(_LINE)
            began = time.perf_counter()
            durable.write_at(fd, _LINE, at % size if size else at)
            durable.sync_data(fd)
            times.append((began, time.perf_counter()))
    finally:
        os.close(fd)
    return [ended - began for began, ended in times]


def _folder(path: str) -> None:
    durable.make_dir(path)
    durable.write_new(f"{path}/msg", _LINE)


def _rate(act: Callable[[int], None], seconds: float) -> float:
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < seconds:
        act(done)
        done += 1
    return done / (time.perf_counter() - began)
