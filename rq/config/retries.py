"""What the setting `retry` may be."""

from __future__ import annotations

import re
import signal

from rq.config.values import check_names
from rq.errors import BadInput
from rq.message.causes import WORDS
from rq.message.retry import DOUBLING, LONGEST, MOST_TIMES, WAIT, Retry, Wait
from rq.words import moments

_KEYS = ("on", "times", "wait")
_WAIT_KEYS = ("first", "factor", "cap", "jitter")
_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})", re.ASCII)
_SIGNALS = frozenset(member.name for member in signal.Signals)
_MOST_ENTRIES = 100


def check(value: object) -> Retry:
    """Return the setting whole; ValueError says what is wrong with it."""
    if not isinstance(value, dict):
        raise ValueError(
            'it is not an object: {"on": ["exit"], "times": 3, "wait": 60}'
        )
    check_names(value, _KEYS)
    return {
        "on": _on(value.get("on", list(WORDS))),
        "times": _times(value.get("times")),
        "wait": _wait(value.get("wait", 0)),
    }


def _on(value: object) -> list[int | str]:
    if not isinstance(value, list) or len(value) > _MOST_ENTRIES:
        raise ValueError(
            f"on: {value!r:.60} is not a list of at most {_MOST_ENTRIES} entries"
        )
    return [_entry(entry) for entry in value]


def _entry(value: object) -> int | str:
    """Return an exit status, some of them, a signal or a word."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 255:
        return value
    if isinstance(value, str) and (value in WORDS or value in _SIGNALS):
        return value
    span = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if span is not None and 1 <= int(span[1]) <= int(span[2]) <= 255:
        return str(value)
    raise ValueError(
        f'on: {value!r:.60} is no exit status from 1 to 255 (75 or "64-78"), no signal '
        f'("SIGTERM"), and not one of {", ".join(WORDS)}'
    )


def _times(value: object) -> int | None:
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and 0 <= int(str(value)) <= MOST_TIMES:
        return int(str(value))
    raise ValueError(f"times: {value!r:.60} is not a whole number from 0 up")


def _wait(value: object) -> Wait:
    """Return how long to wait, said as seconds, as `5m`, or as an object."""
    if not isinstance(value, dict):
        return {**WAIT, "first": _seconds("wait", value)}
    for name in value:
        if name not in _WAIT_KEYS:
            raise ValueError(
                f"wait: {name!r:.60} is not one of {', '.join(_WAIT_KEYS)}"
            )
    if "first" not in value:
        raise ValueError("wait: it lacks first, the seconds before the first retry")
    return {
        "first": _seconds("wait: first", value["first"]),
        "factor": _number("wait: factor", value.get("factor", DOUBLING), 1.0, 1000.0),
        "cap": _seconds("wait: cap", value.get("cap", 3600)),
        "jitter": _number("wait: jitter", value.get("jitter", 0), 0.0, 1.0),
    }


def _seconds(name: str, value: object) -> float:
    if isinstance(value, str):
        try:
            value = moments.duration(value.strip())
        except BadInput as error:
            raise ValueError(f"{name}: {error}") from None
    return _number(name, value, 0.0, LONGEST)


def _number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if low <= value <= high:
            return float(value)
        raise ValueError(f"{name}: {value} is not between {low:g} and {high:g}")
    raise ValueError(f"{name}: {value!r:.60} is not a number")
