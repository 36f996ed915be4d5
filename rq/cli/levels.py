"""How bad something is to Nagios, for `check_rq`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is: the exit code, and the first word printed."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a queue or a host."""

    level: Level
    text: str
