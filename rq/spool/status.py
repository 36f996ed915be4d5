"""The file `status` of a message: what is known of its last attempt."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import cast

from rq.message.fields import is_whole
from rq.message.message import to_keep
from rq.message.table import LATEST
from rq.replies import Result
from rq.spool.record import Record

_OF_LEASE = frozenset({"hash", "by", "seconds", "word", "untaken", "released"})


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value < 2**63


def _is_time(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value <= LATEST


def _is_part(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(at is None or _is_number(at) for at in value)


def _is_lease(value: object) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _OF_LEASE:
        return False
    return all(_is_text(field) or _is_time(field) for field in value.values())


# What a line of the journal gives to the file, and what each may be.
STATUS_FIELDS: dict[str, Callable[[object], bool]] = {
    "cause": _is_text,
    "exit": _is_number,
    "signal": _is_text,
    "attempt": is_whole,
    "count": is_whole,
    "wait_us": _is_number,
    "run_us": _is_number,
    "cpu_us": _is_number,
    "max_rss": _is_number,
    "outcome": _is_text,
    "result": _is_text,
    "tries": is_whole,
    "batch": _is_text,
    "pid": _is_number,
    "worker": _is_number,
    "log": _is_part,
    "started": _is_time,
    "lease": _is_lease,
    "goes_on": _is_text,
}
_FILE = {
    "job_status": _is_text,
    **STATUS_FIELDS,
    "host": _is_text,
    "finished": _is_time,
}
_HOST = os.uname().nodename


def status_file(record: Record) -> bytes:
    """Return the content of the file `status` that a line of the journal asks for."""
    status: dict[str, object] = {"job_status": record.get("text", "")}
    for name in STATUS_FIELDS:
        value = record.get(name)
        if value is not None:
            status[name] = value
    if "pid" in status:
        status["host"] = _HOST
    ended = status["finished"] = record["ts"] / 1e6
    if "run_us" in record:
        status["started"] = round(ended - record["run_us"] / 1e6, 6)
    return to_keep(status)


def believed(data: Mapping[str, object]) -> Result:
    """Return what a file `status` says, without what RQ never writes there: a script, or
    a hand, could have. It would get into lines of the journal."""
    return cast(
        "Result",
        {
            name: data[name]
            for name, is_right in _FILE.items()
            if name in data and is_right(data[name])
        },
    )
