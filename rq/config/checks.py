"""What each setting may be: a function that returns its value, or says what is wrong.
The table of settings (`settings`) names one for each.

Each raises ValueError, TypeError or BadInput; whoever reads the file adds its name and
the key.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import TypedDict, TypeGuard, cast
from urllib.parse import unquote

from rq import names
from rq.config.values import (
    check_names,
    checked_as,
    either,
    json_object,
    one_of,
    param_numbers,
    whole,
)
from rq.errors import BadInput
from rq.message.table import PARAMS
from rq.words import moments

ONCE, PERSISTENT = "once", "persistent"  # kinds of workers
NEVER = "never"  # is a queue parked
WORD, EXIT = "word", "exit"  # what says how a script has ended


class Pull(TypedDict):
    """The setting `pull`."""

    max: int  # leases at a time
    seconds: int  # of each, unless its worker says others
    share_script: bool  # `GET script` gives the queue's directory
    fetch: bool  # agents fetch attachments
    result_files: int  # that an attempt hands in at most
    result_bytes: int  # of all these


PULL: Pull = {
    "max": 1000,
    "seconds": 60,
    "share_script": False,
    "fetch": True,
    "result_files": 100,
    "result_bytes": 1024**3,
}
LEASES, LEASE_SECONDS = 100_000, 86_400  # the most of `max` and `seconds`
RESULT_FILES, RESULT_BYTES = 100, 2**53  # the most of `result_files`, `result_bytes`

# Per kind of what has ended: `days`, `count` and `bytes` of the newest that are kept.
# Errors that no operator has acknowledged are none of these. A relay's receiver remembers
# for 30 days by its history.
RETENTION: Mapping[str, Mapping[str, float]] = {
    "done": {"days": 7},
    "relayed": {"days": 7},
    "dismissed": {"days": 30},
    "history": {"days": 35},
}


TRUE: tuple[object, ...] = (True, "true", "yes", "1")
_KEPT_BY = ("days", "count", "bytes")


def text(value: object) -> str:
    if isinstance(value, str) and "\0" not in value:
        return value
    raise ValueError(f"{value!r:.60} is not text")


def seconds(value: object) -> float:
    """Return seconds, said as a number or as `90s`, `5m`, `1h30m`."""
    wrong = ValueError(f"{value!r:.60} is not a number of seconds, as 90, 5m or 1h30m")
    if isinstance(value, bool):
        raise wrong
    try:
        number = _number_of_seconds(value)
    except (BadInput, TypeError, ValueError, OverflowError):
        raise wrong from None
    if not 0 <= number <= 86400:
        raise ValueError(f"{value!r:.60} is not between 0 and 86400 seconds")
    return number


def _number_of_seconds(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # a TypeError says so
    except ValueError:
        return moments.duration(str(value).strip())


def _long(value: object) -> float:
    """Return seconds, which are days mostly: `90d`."""
    if isinstance(value, str):
        return moments.duration(value.strip())
    raise ValueError(f"{value!r:.60} is no time such as 90d")


def park(value: object) -> float | None:
    """Return after how long a queue is parked; None: never."""
    if value in (None, NEVER):
        return None
    after = seconds(value)
    if after < 1:
        raise ValueError(f"{value!r:.60} is less than a second, and not {NEVER!r}")
    return after


def program(value: object) -> str:
    said = text(value)
    if said.startswith("/"):
        return said
    raise ValueError(f"{said!r:.60} is not the path of a program from / on")


def flag(value: object) -> bool:
    if value in TRUE:
        return True
    if value in (False, "false", "no", "0", ""):
        return False
    raise ValueError(f"{value!r:.60} is not true or false")


def environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it is not an object of names and values")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name or "\0" in str(text):
            raise ValueError(f"{name!r:.60} cannot be an environment variable")
        if not isinstance(text, str | int | float) or isinstance(text, bool):
            raise ValueError(f"the value of {name} is not text")
    return {name: str(text) for name, text in value.items()}


def texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(text(item) for item in value)
    raise ValueError(f"{value!r:.60} is not a list of texts")


def roles_of_names(value: object) -> dict[str, str]:
    """Return names and their roles; a list of names gives each the role admin."""
    if isinstance(value, list):
        return dict.fromkeys(texts(value), "admin")
    if not isinstance(value, dict):
        raise ValueError(
            "it is neither a list of names nor an object of names and roles"
        )
    return {name: text(role) for name, role in value.items()}


def relative_root(value: object) -> str:
    said = text(value)
    if not said.startswith("/"):
        raise ValueError("it must start with /")
    inner = said.strip("/")
    return f"/{inner}/" if inner else "/"


def prefix(value: object) -> str:
    shlex.split(text(value))
    return str(value)


def tls(value: object) -> dict[str, str]:
    """Return the files of a certificate and its key; nothing for plain HTTP."""
    given = json_object(value)
    if given and set(given) != {"cert", "key"}:
        raise ValueError('it takes {"cert": PATH, "key": PATH}')
    if not all(isinstance(path, str) and path for path in given.values()):
        raise ValueError("cert and key are paths of files")
    return {name: text(path) for name, path in given.items()}


def retention(value: object) -> dict[str, dict[str, float]]:
    """Return the defaults with what `value` says in their place; null: for ever."""
    kept_by = {kind: dict(kept) for kind, kept in RETENTION.items()}
    for kind, kept in json_object(value).items():
        check_names([kind], RETENTION)
        kept_by[kind] = _kept({} if kept is None else json_object(kept))
    if "count" in kept_by["history"]:
        raise ValueError("history is kept by days and bytes, not by count")
    return kept_by


def _kept(value: Mapping[str, object]) -> dict[str, float]:
    kept: dict[str, float] = {}
    for name, number in value.items():
        check_names([name], _KEPT_BY)
        if not _is_number(number) or not 0 <= number <= 2**62:
            raise ValueError(f"{name}: {number!r:.60} is not a number from 0 up")
        kept[name] = number
    return kept


def times(value: object) -> float:
    """Return how many times as long something may take; 0: it does not matter."""
    if not _is_number(value) or not (value == 0 or 1 <= value <= 1e6):
        raise ValueError(f"{value!r:.60} is neither 0 nor a number from 1 up")
    return float(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_BATCH_WAIT = 60.0
_BATCH_KEYS = ("max", "wait", "by", "complete")


def batch(value: object) -> dict[str, object]:
    """Return the setting `batch` whole; nothing for a queue without."""
    given = json_object(value)
    check_names(given, _BATCH_KEYS)
    if not given:
        return {}
    if "max" not in given:
        raise ValueError("it lacks max, how many messages go into one")
    if given.get("complete") and not given.get("by"):
        raise ValueError("complete counts the messages of one value: it needs by")
    return {
        "max": whole(1, 10_000)(given["max"]),
        "wait": seconds(given.get("wait", _BATCH_WAIT)),
        **{key: _param(given[key]) for key in ("by", "complete") if given.get(key)},
    }


_DAY = 86400
_LONGEST_WINDOW = 30 * _DAY  # seconds
_SCOPES = ("queued", "running", "both", "window")
_CONFLICTS = ("join", "replace", "reject")
_UNIQUE_KEYS = ("params", "scope", "seconds", "conflict")


def unique(value: object) -> dict[str, object]:
    """Return the setting `unique` whole; nothing for a queue without."""
    given = json_object(value)
    check_names(given, _UNIQUE_KEYS)
    if not given:
        return {}
    params = list(param_numbers(given.get("params", [])))
    scope = checked_as("scope", one_of(_SCOPES), given.get("scope", "queued"))
    way = given.get("conflict", "join")
    conflict = checked_as("conflict", one_of(_CONFLICTS), way)
    seconds = _window(given.get("seconds", 0))
    if (scope == "window") != bool(seconds):
        raise ValueError("seconds and the scope window go together: say both or none")
    if conflict == "replace" and scope not in ("queued", "both"):
        raise ValueError(
            "replace takes the place of what waits: its scope is queued or both, not "
            f"{scope}"
        )
    return {"params": params, "scope": scope, "conflict": conflict, "seconds": seconds}


def _window(value: object) -> float:
    if isinstance(value, str):
        value = moments.duration(value.strip())
    if not _is_number(value) or not 0 <= value <= _LONGEST_WINDOW:
        days = _LONGEST_WINDOW // _DAY
        raise ValueError(f"seconds: {value!r:.60} is not between 0 and {days} days")
    return float(value)


# ---- how many messages start

_CONCURRENCY_KEYS = ("params", "max")
_MOST_AT_ONCE = 100_000  # as many leases as there may be


def concurrency(value: object) -> dict[str, object]:
    """Return the setting `concurrency` whole; nothing for a queue without."""
    given = json_object(value)
    check_names(given, _CONCURRENCY_KEYS)
    if not given:
        return {}
    params = param_numbers(given.get("params", []))
    if not params:
        raise ValueError("params: it names no param by which messages are equal")
    if "max" not in given:
        raise ValueError("it lacks max, how many equal messages run at the same time")
    most = checked_as("max", whole(1, _MOST_AT_ONCE), given["max"])
    return {"params": params, "max": most}


_RATE_KEYS = ("number", "per", "burst")
_PER = ("second", "minute", "hour")


def rate(value: object) -> dict[str, object]:
    """Return the setting `rate` whole; nothing for a queue without."""
    given = json_object(value)
    check_names(given, _RATE_KEYS)
    if not given:
        return {}
    amount = whole(1, 1_000_000)
    per = checked_as("per", one_of(_PER), given.get("per"))
    number = checked_as("number", amount, given.get("number"))
    burst = given.get("burst")
    burst = number if burst is None else checked_as("burst", amount, burst)
    return {"per": per, "number": number, "burst": burst}


# ---- objects of which each field has a check of its own


def pull(value: object) -> dict[str, object]:
    """Return the setting `pull` whole: the defaults with what `value` says."""
    return {**PULL, **_each(value, _PULL)}


_Checks = Mapping[str, Callable[[object], object]]


def _each(value: object, checks: _Checks) -> dict[str, object]:
    """Return an object of which each field has a check of its own."""
    checked: dict[str, object] = {}
    for name, given in json_object(value).items():
        check_names([name], checks)
        checked[name] = checked_as(name, checks[name], given)
    return checked


def spark(value: object) -> dict[str, object]:
    """Return the setting `spark`: where the one-file jobs of a queue run."""
    return _each(value, _SPARK)


_MEMORY = re.compile(r"[1-9]\d{0,6} ?[MGT]i?B", re.ASCII)


def _memory(value: object) -> str:
    """Return how much memory DuckDB takes.

    >>> _memory("500MB")
    '500MB'
    """
    if not (isinstance(value, str) and _MEMORY.fullmatch(value)):
        raise ValueError(f"{value!r:.60} is no amount such as 2GB or 500MB")
    return value


def master(value: object) -> str:
    """Return the address of a cluster; Spark Connect is none: what reads files and takes
    part in a commit runs in a driver and in tasks that import RQ."""
    said = text(value)
    if said.startswith("sc://"):
        raise ValueError(
            "sc:// is Spark Connect, where a job has no driver of its own: name the "
            'cluster itself, as "spark://HOST:7077", or "local[*]"'
        )
    return said


def _conf(value: object) -> dict[str, str]:
    """Return settings of Spark."""
    settings = environment(value)
    for name in settings:
        if not name.startswith("spark."):
            raise ValueError(f"{name} does not begin with spark.")
    return settings


_RIGHT = re.compile(
    rf"(?:\*|{names.QUEUE_NAME.pattern}) (?:reads|writes) (?:\*|[A-Za-z][A-Za-z0-9_]*)"
)


def _allowed(value: object) -> tuple[str, ...]:
    """Return what jobs may fetch, and which queues may read or write tables."""
    every = texts(value)
    for entry in every:
        if " " in entry.strip() and not _RIGHT.fullmatch(entry):
            raise ValueError(
                f"{entry!r:.80} is neither a place nor says which queue reads or writes a "
                'table: "reports reads orders"'
            )
    return every


_STORE = re.compile(
    r"s3://[A-Za-z0-9][A-Za-z0-9._-]{0,254}(?:/[^?#\s]*)?(?:\?[^#\s]*)?", re.ASCII
)


def _tables(value: object) -> str:
    """Return the place in a store for the tables of a queue. One that is refused is not
    repeated: it may hold what is secret.

    >>> _tables("s3://lake/shop/?region=eu-west-1")
    's3://lake/shop/?region=eu-west-1'
    """
    if not (isinstance(value, str) and _STORE.fullmatch(value) and _is_plain(value)):
        raise ValueError(
            "say s3://BUCKET/PREFIX/, behind it perhaps ?region=, scheme= and "
            "endpoint_override=; rights (AWS_…) belong in env_vars"
        )
    return value


def _is_plain(place: str) -> bool:
    """Whether all who read a store take an address for the same place.

    >>> _is_plain("s3://lake/shop/"), _is_plain("s3://lake/shop/./"), _is_plain("s3://lake/a//b")
    (True, False, False)
    """
    path = unquote(place.partition("?")[0].removeprefix("s3://"))
    parts = path.rstrip("/").split("/")
    return path.isprintable() and {"", ".", ".."}.isdisjoint(parts)


_SPARK: _Checks = {
    "engine": one_of(("spark", "duckdb")),
    "memory": _memory,
    "threads": whole(1, 1024),
    "master": master,
    "conf": _conf,
    "idle": seconds,
    "patience": seconds,
    "keep_sources": _long,
    "allow": _allowed,
    "tables": _tables,
}
_PULL: _Checks = {
    "max": whole(1, LEASES),
    "seconds": whole(1, LEASE_SECONDS),
    "share_script": flag,
    "fetch": flag,
    "result_files": whole(0, RESULT_FILES),
    "result_bytes": whole(0, RESULT_BYTES),
}


def _param(value: object) -> str:
    if value in ("param1", "param2", "param3", "param4"):
        return str(value)
    raise ValueError(f"{value!r:.60} is not one of param1 to param4")


clone = either("link", "copy")
worker = either(ONCE, PERSISTENT)
success = either(WORD, EXIT)

_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?", re.ASCII)
_OCTAL = re.compile(r"0*[0-7]{1,3}", re.ASCII)


def account(value: object) -> str:
    """Return the name, or the number, of a user or a group."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and (value == "" or _ACCOUNT.fullmatch(value)):
        return value
    raise ValueError(f"{value!r:.60} is neither a name nor a number of an account")


def umask(value: object) -> str:
    if isinstance(value, str) and (value == "" or _OCTAL.fullmatch(value)):
        return value
    raise ValueError(f'{value!r:.60} is not text of octal digits, such as "027"')


def host(value: object) -> str:
    """Return a name that full ids can begin with: they are URLs."""
    said = text(value)
    if not names.is_url(f"http://{said}"):
        raise ValueError(f"{value!r:.60} is no name of a host: it holds blanks")
    return said


# ---- what the index keeps

INDEX: Mapping[str, float] = {"days": 31.0, "bytes": 2.0 * 1024**3}


def index(value: object) -> Mapping[str, float] | None:
    """Return the root's setting `index` whole; None: it is off."""
    if value is False:
        return None
    given = {} if value is True else json_object(value)
    check_names(given, INDEX)
    for name, number in given.items():
        if not _is_number(number) or not 0 < number <= 2**62:
            raise ValueError(f"{name}: {number!r:.60} is not a number above 0")
    return {**INDEX, **cast("Mapping[str, float]", given)}


def hidden(value: object) -> dict[str, tuple[str, ...]]:
    """Return a queue's setting `index`: params that are not kept."""
    given = json_object(value)
    check_names(given, ("hide",))
    hide = texts(given.get("hide", []))
    check_names(hide, PARAMS)
    return {"hide": tuple(hide)} if hide else {}
