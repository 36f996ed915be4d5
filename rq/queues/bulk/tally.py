"""How many messages have failed alike: counts by cause and by group."""

from __future__ import annotations

from collections import Counter
from typing import TypedDict

from rq.errors import BadMessage, NoSuchMessage
from rq.message.group import group, wording
from rq.replies import Alike
from rq.spool import Spool

MOST = 10_000  # messages whose status is read; a page does not wait for a million
_GROUPS = 50  # that are told, the most frequent


class TallyView(TypedDict):
    """The counts, as fields of a BulkChoice."""

    causes: dict[str, int]
    groups: list[Alike]
    grouped: int


class Tally:
    """Counts the failures of messages, by what each says of itself."""

    def __init__(self) -> None:
        self._number = 0
        self._groups: Counter[str] = Counter()
        self._sample: dict[str, tuple[str, str]] = {}  # cause and wording of each

    def room_for(self, ids: list[str]) -> list[str]:
        """Return those of some messages that can still be counted."""
        return ids[: MOST - self._number]

    def add(self, spool: Spool, msg_id: str) -> None:
        """Count a message; one that cannot be read has left meanwhile."""
        try:
            status = spool.status(msg_id)
        except (BadMessage, NoSuchMessage):
            return
        cause, text = status.get("cause", ""), status.get("job_status", "")
        name = group(cause, text)
        self._number += 1
        self._groups[name] += 1
        if name not in self._sample:
            self._sample[name] = cause, wording(text)

    def view(self) -> TallyView:
        causes: Counter[str] = Counter()
        for name, number in self._groups.items():
            causes[self._sample[name][0]] += number
        return {
            "causes": dict(causes.most_common()),
            "groups": [
                _alike(name, number, *self._sample[name])
                for name, number in self._groups.most_common(_GROUPS)
            ],
            "grouped": self._number,
        }


def _alike(name: str, number: int, cause: str, said: str) -> Alike:
    return {"group": name, "cause": cause, "wording": said, "messages": number}
