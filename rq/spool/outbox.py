"""What a message still owes to other queues when it has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Owed:
    """A message to be delivered to another queue, with a key that makes it one."""

    dest: str
    message: dict[str, Any]
    since: float  # epoch seconds
    msg_id: str = ""  # whose end owes it
    files: bool = False  # the attachments of that one go along


def owed(out: Mapping[str, Any], msg_id: str, since: float) -> Owed:
    """Return what an entry of `out`, in the line that ended `msg_id`, owes."""
    files = bool(out.get("files"))
    return Owed(out["dest"], out["message"], since, msg_id, files)


def renewed(one: Owed, since: float) -> Owed:
    """Return an entry as if it were owed from `since`."""
    return dataclasses.replace(one, since=since)


def key(journal: str, seq: int, number: int) -> str:
    """Return the key under which the receiver knows this delivery."""
    return f"{journal}/{seq}/{number}"


def to_json(owed: dict[tuple[int, int], Owed]) -> list[list[Any]]:
    return [
        [seq, number, one.dest, one.message, one.since, one.msg_id, one.files]
        for (seq, number), one in owed.items()
    ]


def from_json(data: list[list[Any]]) -> dict[tuple[int, int], Owed]:
    return {(int(seq), int(number)): Owed(*rest) for seq, number, *rest in data}
