"""Reading what is kept of the attempts on a message, and where each lies in its logs;
nothing here writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import orjson

from rq.files import beneath
from rq.layout import ATTEMPTS, JOB, STATUS, STDIO_LOG
from rq.message.next_attempt import how
from rq.replies import AttemptRow, AttemptsView, Result
from rq.scripts.pipe import LINE_LIMIT
from rq.spool import attempt_files
from rq.spool.status import believed

_MOST = 1024 * 1024  # bytes of a file: a script may have written it
_TEXT = 2000  # characters of what was said, in a list
_FILE = re.compile(r"([1-9]\d{0,9})\.json", re.ASCII)
_SET_ASIDE = re.compile(r"stdio\.([1-9]\d{0,9})\.log", re.ASCII)


def listed(path: str, dir_fd: int, running: Result | None = None) -> AttemptsView:
    """Return the attempts on the message in the folder `path`, the first one first;
    `running` is the one that has not ended."""
    results = _read(path, dir_fd)
    if running is not None and "attempt" in running:
        results[running["attempt"]] = running
    last = max(results, default=0)
    logs = logs_in(path, dir_fd)
    rows: list[AttemptRow] = []
    ends: dict[str, int] = {}
    for number in sorted(results):
        row = _row(number, results[number], logs, ends)
        if _begins_anew(row, rows):
            _forget_logs(rows)
        rows.append(row)
    return {"attempts": rows, "left_out": max(0, last - len(rows))}


def _read(path: str, dir_fd: int) -> dict[int, Result]:
    """Return what is kept of each attempt; of an only one that went well its status."""
    matches = map(_FILE.fullmatch, beneath.names(f"{path}/{ATTEMPTS}", dir_fd))
    numbers = sorted(int(match[1]) for match in matches if match is not None)
    last = numbers[-1] if numbers else 0
    results: dict[int, Result] = {}
    for number in numbers[:1] + numbers[1:][-attempt_files.NEWEST :]:
        result = _believed(f"{path}/{ATTEMPTS}/{number}.json", dir_fd)
        if result and not attempt_files.is_outlived(number, last):
            results[number] = {**result, "attempt": number}
    result = _believed(f"{path}/{STATUS}", dir_fd)
    number = result.get("attempt", 0)
    if "run_us" in result and number >= 1:
        results.setdefault(number, result)
    return results


def _believed(path: str, dir_fd: int) -> Result:
    try:
        value = orjson.loads(beneath.read(path, dir_fd, _MOST))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return believed(value) if isinstance(value, dict) else {}


def _row(
    number: int, result: Result, logs: Collection[str], ends: dict[str, int]
) -> AttemptRow:
    """Return a row of the list; `ends` is where in each log the attempt before ended."""
    row = cast("AttemptRow", {**result, "attempt": number})
    row["text"] = str(row.pop("job_status", ""))[:_TEXT]
    row["how"] = how(result)[:_TEXT] if "outcome" in result else "at work"
    if "result" in row:
        row["result"] = row["result"][:LINE_LIMIT]
    file = log_of(number, logs)
    if file is None:
        return row
    part = result.get("log")
    if part is not None:
        begin, end = part
        row["log"] = [ends.get(file, 0) if begin is None else begin, end]
        row["log_file"] = file
        ends[file] = end or 0
    return row


def _begins_anew(row: AttemptRow, before: Sequence[AttemptRow]) -> bool:
    """Whether a log begins with this attempt that others had written to by its name: they
    had another `job/`, whose content lies beside this one (`handed_over.renew`)."""
    file = row.get("log_file")
    last = next((r for r in reversed(before) if r.get("log_file") == file), None)
    if file is None or last is None:
        return False
    return (row["log"][0] or 0) < (last["log"][1] or 0)


def _forget_logs(rows: Sequence[AttemptRow]) -> None:
    for row in rows:
        row.pop("log_file", None)


def logs_in(path: str, dir_fd: int) -> list[str]:
    """Return the logs in the folder of a message."""
    names = beneath.names(f"{path}/{JOB}", dir_fd)
    return [name for name in names if name == STDIO_LOG or _SET_ASIDE.fullmatch(name)]


def log_of(number: int, logs: Collection[str]) -> str | None:
    """Return the log that tells of an attempt: one that was set aside has the number of
    the last that it tells of.

    >>> logs = ["stdio.3.log", "stdio.log", "stdio.4.log"]
    >>> [log_of(n, logs) for n in (1, 3, 4, 5)]
    ['stdio.3.log', 'stdio.3.log', 'stdio.4.log', 'stdio.log']
    """
    aside = [int(match[1]) for match in map(_SET_ASIDE.fullmatch, logs) if match]
    after = [last for last in aside if last >= number]
    if after:
        return f"stdio.{min(after)}.log"
    return STDIO_LOG if STDIO_LOG in logs else None


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of a log that one attempt wrote."""

    file: str
    begin: int
    end: int | None  # None: to the end of the file


def part_of(rows: Sequence[Mapping[str, object]], number: int) -> Part | None:
    """Return where the output of an attempt is; None: it has none, or is not kept."""
    for row in rows:
        log, file = row.get("log"), row.get("log_file")
        if row.get("attempt") == number and file and isinstance(log, list):
            return Part(str(file), int(log[0] or 0), log[1])
    return None


def why_none(rows: Sequence[Mapping[str, object]], number: int) -> str:
    """Return why there is no output of an attempt.

    >>> why_none([{"attempt": 1}, {"attempt": 21}], 3)
    'nothing is kept of attempt 3; those are 1, 21'
    >>> why_none([{"attempt": 3}], 3), why_none([], 1)
    ('attempt 3 has written nothing', 'there was no attempt yet')
    >>> why_none([{"attempt": 3, "log": [0, 5]}], 3)
    'the log of attempt 3 is not in job/ any more; job.1/, beside it, may have it'
    """
    numbers = [row["attempt"] for row in rows]
    if not numbers:
        return "there was no attempt yet"
    if number in numbers:
        if "log" not in rows[numbers.index(number)]:
            return f"attempt {number} has written nothing"
        return (
            f"the log of attempt {number} is not in job/ any more; job.1/, beside it, may "
            "have it"
        )
    kept = ", ".join(map(str, numbers))
    return f"nothing is kept of attempt {number}; those are {kept}"
