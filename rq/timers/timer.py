"""What a timer is: the file timers/NAME.json, read and checked."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rq import config, fieldnames, names
from rq.errors import BadConfig, BadMessage
from rq.message import from_request
from rq.nesting import Json

SHORTEST = 60  # seconds of a period
LONGEST = 100 * 366 * 86400
_KEYS = ("period", "msg")
_LONGEST_NAME = 100  # characters that go into a key as they are
_ANY_ID = "19700101.0000.00.000.0"


@dataclass(frozen=True, slots=True)
class Timer:
    """A timers/NAME.json that can be used."""

    name: str
    period: int  # seconds
    dest: str
    fields: Mapping[str, Json]  # of its messages, but for `dest`

    @property
    def queue(self) -> str:
        """The local queue that takes the message."""
        return "relay" if names.is_remote(self.dest) else self.dest

    def key(self, nominal: float) -> str:
        """Return what names the message of one fire: sent again, it is the same."""
        named = self.name
        if not named.isprintable() or len(named) > _LONGEST_NAME:
            named = hashlib.sha256(os.fsencode(named)).hexdigest()
        return f"timer/{named}/{nominal!r}"


def parse(path: Path) -> Timer:
    """Return the timer in a file; BadConfig says in a sentence what is wrong."""
    data = config.read_json(path)
    for key in data:
        if key not in _KEYS:
            raise BadConfig(f"{path}: {_unknown(key)}")
    period = data.get("period")
    if isinstance(period, bool) or not isinstance(period, int):
        raise BadConfig(f"{path}: 'period' is missing or not a whole number of seconds")
    if not SHORTEST <= period <= LONGEST:
        raise BadConfig(
            f"{path}: 'period' is {period} s; it has to be at least {SHORTEST} s, "
            f"and at most {LONGEST} s"
        )
    dest, fields = _message(data.get("msg"), path)
    return Timer(path.name.removesuffix(".json"), period, dest, fields)


def _message(message: object, path: Path) -> tuple[str, dict[str, Json]]:
    """Return `dest` and the other fields of a timer's message that are set."""
    if not isinstance(message, dict):
        raise BadConfig(f"{path}: 'msg' is missing or not an object")
    dest = message.get("dest")
    if not isinstance(dest, str) or not dest:
        raise BadConfig(f"{path}: 'dest' of 'msg' is missing")
    if not names.is_remote(dest) and not names.is_queue_name(dest):
        raise BadConfig(f"{path}: 'dest' is neither a queue nor a URL: {dest!r}")
    try:
        _check(message)
    except BadMessage as error:
        raise BadConfig(f"{path}: 'msg': {error}") from None
    fields = {k: v for k, v in message.items() if k != "dest" and v is not None}
    return dest, fields


def _unknown(key: str) -> str:
    """Return why a timer has no such key."""
    if key in fieldnames.SAID_BY_SENDERS:
        return f"{key!r} is a field of the message: put it into 'msg'"
    close = difflib.get_close_matches(key, _KEYS, 1)
    hint = f"did you mean {close[0]!r}?" if close else "a timer has 'period' and 'msg'"
    return f"unknown key {key!r:.60}; {hint}"


def _check(message: Mapping[str, Json]) -> None:
    """BadMessage unless a queue would take the message as it is meant."""
    for name in sorted(fieldnames.OWN & message.keys()):
        raise BadMessage(f"{name!r} is set by RQ, and cannot be set by a timer")
    fieldnames.check(message)
    from_request(message, _ANY_ID, 0.0, "").encode_new()


def refusal(name: str) -> str:
    """Return why a file of that name is no timer, "" when it may be one."""
    stem, _, suffix = name.partition(".")
    if suffix in ("yaml", "yml"):
        return f"{name} is YAML, which RQ does not read: write it as {stem}.json"
    if suffix != "json" or not stem:
        return f"{name} is not called NAME.json, with no other dot"
    return ""
