"""What a job may hand over to the functions of its `q`: one table, read before each call.

A wrong argument is a mistake in the job's code. Without this it would be an error of Python from
inside RQ, or none until the function has returned. Whether a value can be done (a column that is
there, a name that is free) those say who do it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import numbers
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from rq.errors import BadInput
from rq.message.table import PARAMS
from rq.words import visible

Guarded = TypeVar("Guarded")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)")
_LONGEST_DELAY = 10**9  # seconds
_PLAIN = (str, bytes, int, float, bool, type(None), list, tuple, dict, set, Path)
_LONGEST = 60  # characters of a value that a sentence shows
FIELDS = (*PARAMS, "src", "due", "max_count", "post_run_webhook")  # that q.send sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What an argument may be."""

    text: str  # for people, behind "is not"
    takes: Callable[[Any], bool]
    is_many: bool = False  # perhaps several values, which are kept if they come once


def demand(
    verb: str, kinds: Mapping[str, Kind], values: Iterable[tuple[str, object]]
) -> None:
    """Raise BadInput unless each value is what the table says of its name."""
    for name, value in values:
        if name not in kinds:
            these = ", ".join(kinds)
            raise BadInput(f"{verb}: {name!r:.40} is not known; these are: {these}")
        if not kinds[name].takes(value):
            raise BadInput(
                f"{verb}: {visible.line(name)}={_as_text(value)} is not {kinds[name].text}"
            )


def guarded(kind: type[Guarded]) -> type[Guarded]:
    """Let the functions of a class that TAKEN names be called as it says alone."""
    for verb, kinds in TAKEN.items():
        setattr(kind, verb, _checked(verb, getattr(kind, verb), kinds))
    return kind


def _checked(
    verb: str, function: Callable[..., object], kinds: Mapping[str, Kind]
) -> Callable[..., object]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*values: object, **named: object) -> object:
        call = _bound(f"q.{verb}", signature, kinds, values, named)
        _, *arguments = call.arguments.items()  # behind `self`
        demand(f"q.{verb}", kinds, _each(arguments))
        return function(*call.args, **call.kwargs)

    return checked


def _bound(
    verb: str,
    signature: inspect.Signature,
    kinds: Mapping[str, Kind],
    values: tuple[object, ...],
    named: Mapping[str, object],
) -> inspect.BoundArguments:
    """Return which argument is called what; BadInput if some are missing, too many, or of
    no such name."""
    demand(verb, kinds, ((name, named[name]) for name in named.keys() - kinds.keys()))
    try:
        call = signature.bind(*values, **named)
    except TypeError as error:
        own = [n if n in signature.parameters else f"{n}=" for n in kinds]
        raise BadInput(f"{verb}: {error}; it takes {', '.join(own)}") from None
    for name, value in call.arguments.items():
        if name in kinds and kinds[name].is_many and isinstance(value, Iterator):
            call.arguments[name] = list(value)
    return call


def _each(
    arguments: Iterable[tuple[str, object]],
) -> Iterator[tuple[str, object]]:
    """Give names and values; those that a function collects by `**`, one by one."""
    for name, value in arguments:
        if name in _COLLECTED and isinstance(value, dict):
            yield from value.items()
        else:
            yield name, value


def _as_text(value: object) -> str:
    """Return a value in a few words: to show a table, its engine might read it."""
    if isinstance(value, _PLAIN):
        with contextlib.suppress(ValueError):  # an int of thousands of digits
            return f"{reprlib.repr(value):.{_LONGEST}}"
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"


def seconds(delay: str | float) -> int:
    """Return a delay such as `5m` in whole seconds."""
    parts = _DELAY.fullmatch(str(delay).strip())
    if parts is None:
        raise BadInput(f"{delay!r:.40} is not {DELAY.text}")
    return round(_in_seconds(parts))


def _in_seconds(parts: re.Match[str]) -> float:
    return float(parts[1]) * _SECONDS[parts[2]]


# ---- the kinds


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_delay(value: Any) -> bool:
    is_number = _is_number(value)
    if is_number and not 0 <= value < _LONGEST_DELAY:
        return False
    if not (is_number or isinstance(value, str)):
        return False
    parts = _DELAY.fullmatch(str(value).strip())
    return parts is not None and _in_seconds(parts) < _LONGEST_DELAY


def _is_table(value: object) -> bool:
    # By what is used of it: each engine has classes of its own.
    return hasattr(value, "columns") and hasattr(value, "toArrow")


def _is_json(value: object) -> bool:
    try:
        orjson.dumps(value)
        json.dumps(value, allow_nan=False, default=str)  # which would be null silently
    except (orjson.JSONEncodeError, ValueError):
        return False
    return True


def _are_many(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def _are_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        _are_many(value) and all(isinstance(each, str) for each in value)
    )


def _are_columns(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for each in value)


def _or_none(kind: Kind) -> Kind:
    return Kind(
        text=f"{kind.text}, nor None",
        takes=lambda value: value is None or kind.takes(value),
    )


TEXT = Kind(text="text", takes=lambda value: isinstance(value, str))
FLAG = Kind(text="True or False", takes=lambda value: isinstance(value, bool))
SHARE = Kind(text="0 to 1", takes=lambda value: _is_number(value) and 0 <= value <= 1)
COUNT = Kind(
    text="a whole number, 0 or more",
    takes=lambda value: _is_number(value) and value >= 0 and value % 1 == 0,
)
TABLE = Kind(
    text="a DataFrame of this job (q.spark.createDataFrame makes one of pandas)",
    takes=_is_table,
)
RESULT = Kind(
    text="a DataFrame of this job, text, bytes or a Path",
    takes=lambda value: isinstance(value, str | bytes | Path) or _is_table(value),
)
COLUMNS = Kind(
    text="the name of a column, or a list of some", takes=_are_texts, is_many=True
)
IDS = Kind(
    text="the id of a message, or a list of some", takes=_are_texts, is_many=True
)
DELAY = Kind(text="a delay: say 30, 30s, 5m, 2h or 1d", takes=_is_delay)
JSON = Kind(
    text="what JSON holds: text, a figure, True, False, None, a list or dict of these",
    takes=_is_json,
)
ANY = Kind(text="", takes=lambda _: True)
VALUES = Kind(
    text="a list of values",
    takes=lambda value: _are_many(value) and len(value) > 0,
)

# What q.contract hears of a column, at length; a text says type and nulls alone.
OF_COLUMN = {
    "type": TEXT,
    "not_null": FLAG,
    "least": ANY,
    "most": ANY,
    "one_of": VALUES,
}
COLUMN = Kind(
    text=f"text such as 'long not null', or a dict of {', '.join(OF_COLUMN)}",
    takes=lambda value: isinstance(value, str | Mapping),
)
OF_COLUMNS = Kind(
    text="a dict of names of columns, and what each keeps", takes=_are_columns
)

# ---- the functions

_SOURCE = {"schema": _or_none(TEXT), "only": TEXT}
_READING = {"most_rescued": _or_none(SHARE), "allow_empty": FLAG}
_CSV = {
    "header": FLAG,
    "delimiter": TEXT,
    "quote": TEXT,
    "encoding": TEXT,
    "null": TEXT,
}
_EXPECTED = {"table": TABLE, "rows": COUNT, "not_null": COLUMNS, "unique": COLUMNS}
_MOST = {"most_rejects": SHARE, "most_replaced": SHARE, "most_rescued": SHARE}
_TABLE = {"table": TABLE, "name": TEXT, "by": COLUMNS}
_HOW = {"mode": TEXT, "evolve": TEXT, "key": COLUMNS, "order": TEXT}
_COLLECTED = ("how", "most", "fields")  # what the functions call their `**`
TAKEN: Mapping[str, Mapping[str, Kind]] = {
    "lines": {"allow_empty": FLAG},
    "csv": {**_SOURCE, **_READING, **_CSV},
    "json": {**_SOURCE, **_READING},
    "parquet": {**_SOURCE, "allow_empty": FLAG},
    "parse": {"lines": TABLE, "form": TEXT, "most_rejects": _or_none(SHARE)},
    "since_last": {"name": TEXT},
    "expect": {**_EXPECTED, **_MOST},
    "run": {"text": TEXT},
    "attach": {"result": RESULT, "name": TEXT, "at_least": COUNT},
    "write": {"table": TABLE, "where": TEXT, "by": COLUMNS},
    "table_of": {"name": TEXT},
    "contract": {
        "name": TEXT,
        "columns": OF_COLUMNS,
        "unique": COLUMNS,
        "most_rejects": _or_none(SHARE),
    },
    "table": {**_TABLE, **_HOW},
    "send": {"dest": TEXT, **dict.fromkeys(FIELDS, JSON)},
    "err": {"ids": IDS, "why": TEXT},
    "resend": {"ids": IDS, "delay": DELAY, "why": TEXT},
}

# What `@job` takes.
JOB = {
    "master": _or_none(TEXT),
    "conf": _or_none(
        Kind(text="a dict of Spark's settings, by name", takes=_are_columns)
    ),
    "engine": _or_none(TEXT),
}
