"""Equal waiting messages run once: which are equal, and who rides with whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import orjson

from rq.message.fields import param_text
from rq.words.nesting import Json


def key(params: Mapping[str, Json], numbers: Sequence[int]) -> str | None:
    """Return what two messages must have in common; None when nothing is compared.

    Params are compared as a script gets them: 1 equals "1". A missing one equals a
    missing one.
    """
    if not numbers:
        return None
    given = (params.get(f"param{n}") for n in numbers)
    texts = [None if value is None else param_text(value) for value in given]
    return orjson.dumps(texts).decode()


def group(
    params: Mapping[str, Json], numbers: Sequence[int], by: str | None
) -> str | None:
    """Return what waiting messages have in common that run once: `key`, and who has sent
    them. None when nothing is compared."""
    common = key(params, numbers)
    return common if common is None or not by else f"{by}\t{common}"


class Groups:
    """Waiting messages by key."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, int]] = {}  # with their priorities
        # How many of each priority above 0, of groups that have some.
        self._urgent: dict[str, Counter[int]] = {}

    def add(self, group: str, msg_id: str, priority: int = 0) -> None:
        """Add a message, or change its priority."""
        members = self._members.setdefault(group, {})
        self._forget(group, members.get(msg_id, 0))
        members[msg_id] = priority
        if priority:
            self._urgent.setdefault(group, Counter())[priority] += 1

    def remove(self, group: str, msg_id: str) -> None:
        members = self._members.get(group)
        if members is not None:
            self._forget(group, members.pop(msg_id, 0))
            if not members:
                del self._members[group]

    def _forget(self, group: str, priority: int) -> None:
        if not priority:
            return
        urgent = self._urgent[group]
        urgent[priority] -= 1
        if not urgent[priority]:
            del urgent[priority]
        if not urgent:
            del self._urgent[group]

    def priority(self, group: str | None) -> int:
        """Return the highest priority of a group, which all of it has."""
        urgent = None if group is None else self._urgent.get(group)
        return 0 if urgent is None else max(urgent)

    def clear(self) -> None:
        self._members.clear()
        self._urgent.clear()

    def others(self, group: str, msg_id: str, most: int) -> list[str]:
        """Return up to `most` members of a group but `msg_id`, in the order they came."""
        others = (member for member in self._members.get(group, ()) if member != msg_id)
        return list(islice(others, most))
