"""What a timer is: the file timers/NAME.json, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq import config, names
from rq.errors import BadConfig
from rq.message import PARAMS

SHORTEST = 60  # seconds of a period
LONGEST = 100 * 366 * 86400


@dataclass(frozen=True, slots=True)
class Timer:
    """A timers/NAME.json that can be used."""

    name: str
    period: int  # seconds
    dest: str
    params: Mapping[str, Any]

    @property
    def queue(self) -> str:
        """The local queue that takes the message."""
        return "relay" if names.is_remote(self.dest) else self.dest


def parse(path: Path) -> Timer:
    """Return the timer in a file; BadConfig says in a sentence what is wrong."""
    name = path.name.removesuffix(".json")
    data = config.read_json(path)
    period, message = data.get("period"), data.get("msg")
    if isinstance(period, bool) or not isinstance(period, int):
        raise BadConfig(f"{path}: 'period' is missing or not a whole number of seconds")
    if not SHORTEST <= period <= LONGEST:
        raise BadConfig(f"{path}: 'period' is {period} s; the least is {SHORTEST}")
    if not isinstance(message, dict):
        raise BadConfig(f"{path}: 'msg' is missing or not an object")
    dest = message.get("dest")
    if not isinstance(dest, str) or not dest:
        raise BadConfig(f"{path}: 'dest' of 'msg' is missing")
    if not names.is_remote(dest) and not names.is_queue_name(dest):
        raise BadConfig(f"{path}: 'dest' is neither a queue nor a URL: {dest!r}")
    params = {one: message[one] for one in PARAMS if message.get(one) is not None}
    return Timer(name, period, dest, params)


def refusal(name: str) -> str:
    """Return why a file of that name is no timer, "" when it may be one."""
    stem, _, suffix = name.partition(".")
    if suffix in ("yaml", "yml"):
        return f"{name} is YAML, which RQ does not read: write it as {stem}.json"
    if suffix != "json" or not stem:
        return f"{name} is not called NAME.json with one dot"
    return ""
