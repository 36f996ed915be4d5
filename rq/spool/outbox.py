"""What a message still owes to other queues when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Owed:
    """A message to be delivered to another queue, with a key that makes it one."""

    dest: str
    message: dict[str, Any]
    since: float  # epoch seconds


def key(journal: str, seq: int, number: int) -> str:
    """Return the key under which the receiver knows this delivery."""
    return f"{journal}/{seq}/{number}"


def to_json(owed: dict[tuple[int, int], Owed]) -> list[list[Any]]:
    return [
        [seq, number, one.dest, one.message, one.since]
        for (seq, number), one in owed.items()
    ]


def from_json(data: list[list[Any]]) -> dict[tuple[int, int], Owed]:
    return {
        (int(seq), int(number)): Owed(dest, message, since)
        for seq, number, dest, message, since in data
    }
