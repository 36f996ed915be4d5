"""The limits of an attempt: what each may be, which of two is stricter, and what is said
of one that was exceeded. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from rq.message.causes import Cause
from rq.message.table import LIMITS, LONGEST, ROWS, Kind, Row
from rq.words import moments, wording
from rq.words.nesting import Json

_MIB = 1024 * 1024
_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": _MIB, "gib": 1024**3, "tib": 1024**4}
_SIZE = re.compile(r"\s*(\d{1,20}(?:\.\d{1,6})?)\s*([a-zA-Z]*)\s*", re.ASCII)
_WHOLE = re.compile(r"\s*\d{1,20}\s*", re.ASCII)
_XCPU, _KILL = "SIGXCPU", "SIGKILL"
_OF_SHELLS = 128  # a shell exits with it and the number of a signal that ended a child
_NEAR = 0.9  # of its memory: a script that failed above it is taken to have wanted more


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an attempt may use; None: as much as there is."""

    timeout: float | None = None  # seconds
    grace: float | None = None  # seconds from TERM to KILL
    heartbeat: float | None = None  # seconds of silence
    memory: int | None = None  # bytes
    cpu_seconds: int | None = None  # of one process
    open_files: int | None = None  # of one process
    processes: int | None = None
    log_bytes: int | None = None

    @property
    def of_time(self) -> bool:
        """Whether somebody has to look at the script now and then."""
        return (
            self.timeout is not None
            or self.heartbeat is not None
            or self.log_bytes is not None
        )

    @property
    def of_processes(self) -> bool:
        """Whether the kernel has to be told."""
        return (
            self.memory is not None
            or self.cpu_seconds is not None
            or self.open_files is not None
            or self.processes is not None
        )

    @property
    def is_any(self) -> bool:
        """Whether anything but the grace of an end is limited."""
        return self.given().keys() - {"grace"} != set()

    def given(self) -> dict[str, float]:
        """Return what is limited."""
        limits = ((name, getattr(self, name)) for name in NAMES)
        return {name: value for name, value in limits if value is not None}


NONE = Limits()
NAMES = tuple(field.name for field in fields(Limits))


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that was exceeded, and what is told of it."""

    cause: Cause
    text: str


# The causes of an attempt that was ended for a limit.
OVER = tuple(cause for cause in Cause if cause.row.is_limit)


# ---- what each may be


def seconds(value: object) -> float:
    """Return a time, said as a number or as `90s`, `5m`, `1h30m`; ValueError."""
    if isinstance(value, str):
        number = moments.duration(value.strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(f"{value!r:.60} is not a number of seconds")
    if not 0 < number <= LONGEST:
        raise ValueError(f"{value!r:.60} is not more than 0 and at most 366 days")
    return number


def _grace(value: object) -> float:
    return 0.0 if value in (0, "0") and value is not False else seconds(value)


def size(value: object) -> int:
    """Return bytes, said as a number or as `512 MiB`; ValueError.

    >>> [size(value) for value in (4096, "4096", "512 MiB", "1.5GiB")]
    [4096, 4096, 536870912, 1610612736]
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(
            f"{value!r:.60} is not a size: say bytes, or 512 MiB (KiB, MiB, GiB, TiB)"
        )
    return int(float(match[1]) * unit) if unit > 1 else int(float(match[1]))


def _whole(value: object) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r:.60} is not a whole number")


def _between(
    what: Callable[[object], int], low: int, high: int
) -> Callable[[object], int]:
    def check(value: object) -> int:
        number = what(value)
        if not low <= number <= high:
            raise ValueError(f"{value!r:.60} is not between {low} and {high}")
        return number

    return check


def _check_of(row: Row) -> Callable[[object], float]:
    if row.kind is Kind.SECONDS:
        return _grace if row.name == "grace" else seconds
    what = size if row.kind is Kind.BYTES else _whole
    return _between(what, int(row.low), int(row.high))


# But for the deadline, which is a moment, a queue has the same limits as its messages.
_ROWS = {row.name: row for row in ROWS if row.name in LIMITS}
CHECKS: Mapping[str, Callable[[object], float]] = {
    name: _check_of(row) for name, row in _ROWS.items() if row.kind is not Kind.NUMBER
}
assert CHECKS.keys() == set(NAMES), "`Limits` has other fields than the table"


# ---- which of two is stricter


def stricter(*given: Mapping[str, Json | float | None]) -> Limits:
    """Return the smallest of each limit that is given.

    >>> stricter({"timeout": 5.0, "memory": None}, {"timeout": 9.0, "processes": 4})
    ... # doctest: +ELLIPSIS
    Limits(timeout=5.0, grace=None, ..., processes=4, log_bytes=None)
    """
    least: dict[str, float] = {}
    for limits in given:
        for name, value in limits.items():
            if isinstance(value, int | float) and name in CHECKS:
                least[name] = min(value, least.get(name, value))
    return Limits(**least) if least else NONE  # type: ignore[arg-type]  # by name


def of(base: Limits, own: Mapping[str, Json]) -> Limits:
    """Return the limits of a message in a queue that has those of `base`."""
    return stricter(base.given(), own) if own else base


def from_json(given: Mapping[str, Json]) -> Limits:
    """Return the limits that another RQ tells of; ValueError or BadInput. Names that are
    not known mean nothing."""
    ours = given.keys() & CHECKS.keys()
    return stricter({name: CHECKS[name](given[name]) for name in ours})


def too_late(
    own: Mapping[str, Json], after_due: float | None, due: float, now: float
) -> str | None:
    """Return why a message is not started any more; None: it is. `after_due`: the seconds
    that its queue gives it from `due`."""
    deadline = own.get("deadline")
    moment = deadline if isinstance(deadline, int | float) else None
    if after_due is not None:
        moment = min(due + after_due, due + after_due if moment is None else moment)
    if moment is None or now <= moment:
        return None
    return f"its deadline was {wording.moment(moment)} UTC"


# ---- what is said


def in_words(given: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return limits for people; a deadline is a time, or seconds after `due`.

    >>> in_words({"memory": 536870912, "timeout": 600, "open_files": 64})
    [('timeout', '10 min'), ('memory', '512 MiB'), ('open files', '64')]
    """
    return [
        (_ROWS[name].label or name, _in_words(name, value))
        for name in (*NAMES, "deadline")
        if isinstance(value := given.get(name), int | float)
    ]


def of_view(message: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the limits that a message shows, for people; while it may run, also those of
    its queue."""
    both = message.get("_limits")
    return in_words({**message, **both} if isinstance(both, Mapping) else message)


def _in_words(name: str, value: float) -> str:
    if _ROWS[name].kind is Kind.BYTES:
        return _size(value)
    if name in ("open_files", "processes"):
        return str(value)
    if name == "deadline" and value > LONGEST:
        return f"{wording.moment(value)} UTC"
    after = " after it is due" if name == "deadline" else ""
    return f"{wording.duration(value)}{after}"


def _size(size_bytes: float) -> str:
    return wording.size(size_bytes).replace(".0 ", " ")


def from_words(pair: str) -> tuple[str, str]:
    """Return the name and the value of `timeout=10m`; ValueError when it is no limit."""
    name, equals, value = pair.partition("=")
    if not equals or name not in (*CHECKS, "deadline"):
        names = ", ".join((*CHECKS, "deadline"))
        raise ValueError(f"{pair!r:.60}: say NAME=VALUE, where NAME is one of {names}")
    return name, value


def killed(ran: float, why: str) -> str:
    return f"killed after {wording.duration(ran)}: {why}"


def over_time(limits: Limits, ran: float, silent: float) -> Over | None:
    """Return which limit of time is exceeded after so many seconds, of which its script
    was `silent` the last; None: neither is."""
    if limits.timeout is not None and ran >= limits.timeout:
        allowed = wording.duration(limits.timeout)
        return Over(Cause.TIMEOUT, killed(ran, f"over its timeout of {allowed}"))
    if limits.heartbeat is not None and silent >= limits.heartbeat:
        beat = wording.duration(limits.heartbeat)
        return Over(Cause.HEARTBEAT, killed(ran, f"no word for {beat}, its heartbeat"))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """How a process ended, and what it has used."""

    exit: int | None
    signal: str | None
    ran: float  # seconds
    cpu: float | None  # seconds
    peak: int | None  # bytes; None: it cannot be told from that of its starter
    oom_kills: int = 0  # processes that the kernel has ended for want of memory


def over_resources(limits: Limits, used: Used) -> Over | None:
    """Return which limit that the kernel keeps has ended a process; None: none has."""
    if used.exit == 0:
        return None
    if limits.memory is not None and _was_short(limits.memory, used):
        allowed = _size(limits.memory)
        return Over(Cause.MEMORY, killed(used.ran, f"over its {allowed}"))
    if limits.cpu_seconds is not None and _was_busy(limits.cpu_seconds, used):
        allowed = wording.duration(limits.cpu_seconds)
        text = killed(used.ran, f"over its {allowed} of processor time")
        return Over(Cause.CPU, text)
    return None


def _was_short(memory: int, used: Used) -> bool:
    return used.oom_kills > 0 or (used.peak or 0) >= _NEAR * memory


def _was_busy(cpu_seconds: int, used: Used) -> bool:
    if used.signal == _XCPU or used.exit == _OF_SHELLS + 24:
        return True
    was_killed = used.signal == _KILL or used.exit == _OF_SHELLS + 9
    return was_killed and (used.cpu or 0) >= cpu_seconds
