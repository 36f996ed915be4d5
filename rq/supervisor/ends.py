"""How a child has ended, in words for the log and for `rq status`."""

from __future__ import annotations

import os

from rq.layout import Root
from rq.proc.spawn import signal_name
from rq.supervisor.children import Kind, Process

_LOG_TAIL = 2048  # bytes


def sentence(root: Root, process: Process, status: int | None) -> str:
    """Return how a child ended; `status` is negative for a signal, None if unknown."""
    if status is None or status < 0:
        return f"was killed by {signal_name(-status)}" if status else "ended"
    text = f"ended with status {status}"
    last = _last_line(root, process) if status else ""
    return f"{text}; the last line of its log: {last}" if last else text


def _last_line(root: Root, process: Process) -> str:
    is_queue = process.kind is Kind.QUEUE
    name = f"queue-{process.name}.log" if is_queue else f"{process.name}.log"
    try:
        with (root.log / name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
