"""Equal waiting messages run once: which are equal, and who rides with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import orjson

from rq.nesting import Json


def key(params: Mapping[str, Json], numbers: Sequence[int]) -> str | None:
    """Return what two messages must have in common; None when nothing is compared.

    A missing param equals a missing one.
    """
    if not numbers:
        return None
    return orjson.dumps([params.get(f"param{n}") for n in numbers]).decode()


class Groups:
    """Waiting messages by key."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, None]] = {}

    def add(self, group: str, msg_id: str) -> None:
        self._members.setdefault(group, {})[msg_id] = None

    def remove(self, group: str, msg_id: str) -> None:
        members = self._members.get(group)
        if members is not None:
            members.pop(msg_id, None)
            if not members:
                del self._members[group]

    def others(self, group: str, msg_id: str, most: int) -> list[str]:
        """Return up to `most` members of a group but `msg_id`, in the order they came."""
        others = (member for member in self._members.get(group, ()) if member != msg_id)
        return list(islice(others, most))
