"""How a child has ended, in words for the log and for `rq status`."""

from __future__ import annotations

import os
from pathlib import Path

from rq.layout import Root
from rq.proc.spawn import signal_name
from rq.supervisor.children import Kind, Process

_LOG_TAIL = 2048  # bytes


def log_file(root: Root, process: Process) -> Path:
    """Return the log of a child, where what it prints goes, too."""
    is_queue = process.kind is Kind.QUEUE
    return root.log / (
        f"queue-{process.name}.log" if is_queue else f"{process.name}.log"
    )


def log_size(root: Root, process: Process) -> int:
    """Return how long a child's log is now: what is in it was said before."""
    try:
        return log_file(root, process).stat().st_size
    except OSError:
        return 0


def sentence(root: Root, process: Process, status: int | None) -> str:
    """Return how a child ended; `status` is negative for a signal, None if unknown."""
    if status is None or status < 0:
        return f"was killed by {signal_name(-status)}" if status else "ended"
    text = f"ended with status {status}"
    last = _last_line(root, process) if status else ""
    return f"{text}; the last line of its log: {last}" if last else text


def _last_line(root: Root, process: Process) -> str:
    """Return the last line that this start of the child has logged, "" when none."""
    try:
        with log_file(root, process).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A log that is shorter than it was has been rotated since.
            since = process.log_from if process.log_from <= size else 0
            file.seek(max(since, size - _LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").rstrip("\n").split("\n")
    except OSError:
        return ""
    return lines[-1].strip()[:300]
