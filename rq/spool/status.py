"""The file `status` of a message: what is known of its last attempt."""

from __future__ import annotations

from rq.message import to_keep
from rq.spool.record import Record

STATUS_FIELDS = (
    "cause",
    "exit",
    "signal",
    "attempt",
    "count",
    "wait_us",
    "run_us",
    "cpu_us",
    "max_rss",
    "outcome",
    "batch",
)


def status_file(record: Record) -> bytes:
    """Return the content of the file `status` that a line of the journal asks for."""
    status: dict[str, object] = {"job_status": record.get("text", "")}
    for name in STATUS_FIELDS:
        value = record.get(name)
        if value is not None:
            status[name] = value
    status["finished"] = record["ts"] / 1e6
    return to_keep(status)
