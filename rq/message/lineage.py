"""Which messages a message was made from, and which were made from it.

Jobs on Spark and DuckDB say both. Any sender can say the like, so only what names a
message becomes a link.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rq import names

MADE_FROM = "made_from"  # a field of what a job sends
_MOST = 20  # links of a message


@dataclass(frozen=True, slots=True)
class Kin:
    """Messages that a message is made from, or that were made from it."""

    label: str
    places: tuple[str, ...]  # QUEUE/ID
    more: int = 0  # that are not named


def kin(message: Mapping[str, object], result: Mapping[str, object]) -> list[Kin]:
    """Return all kin of a message and of its last attempt."""
    of_message = predecessors(message.get("after")), origin(message.get(MADE_FROM))
    both = *of_message, sent(result.get("result"))
    return [each for each in both if each]


def fields_of_kin(message: Mapping[str, object]) -> frozenset[str]:
    """Return the fields of a message that `kin` tells."""
    return frozenset({MADE_FROM} if origin(message.get(MADE_FROM)) else ())


def predecessors(value: object) -> Kin | None:
    """Return the messages that had to end before a message, or have to.

    >>> predecessors(["box/20260102.0304.05.006.7"])
    Kin(label='after', places=('box/20260102.0304.05.006.7',), more=0)
    """
    if not isinstance(value, list | tuple):
        return None
    places = _places(value)
    return Kin("after", places, len(value) - len(places)) if places else None


def origin(value: object) -> Kin | None:
    """Return the messages behind a message, by its field `made_from`; None: it does not
    say which.

    >>> ids = ["20260102.0304.05.006.7"]
    >>> origin({"queue": "logs", "batch": "b", "messages": 3, "ids": ids})
    Kin(label='made from', places=('logs/20260102.0304.05.006.7',), more=2)
    >>> origin({"queue": "../x", "ids": ids})
    """
    if not isinstance(value, Mapping):
        return None
    queue, ids, count = (value.get(name) for name in ("queue", "ids", "messages"))
    if not (isinstance(ids, list) and isinstance(count, int)):
        return None
    places = _places(f"{queue}/{msg_id}" for msg_id in ids)
    return Kin("made from", places, max(0, count - len(places))) if places else None


def sent(result: object) -> Kin | None:
    """Return the messages that an attempt has sent, by its result; None: it names none.

    >>> sent('{"messages": 1, "sent": ["box/20260102.0304.05.006.7", "javascript:1"]}')
    Kin(label='sent', places=('box/20260102.0304.05.006.7',), more=0)
    >>> [sent(text) for text in ("null", "{", '{"messages": 1, "sent": 7}')]
    [None, None, None]
    """
    try:
        said = json.loads(str(result))
    except (ValueError, RecursionError):
        return None
    given = said.get("sent") if isinstance(said, dict) else None
    places = _places(given) if isinstance(given, list) else ()
    return Kin("sent", places) if places else None


def text(kin: Kin) -> str:
    """Return them as one line.

    >>> text(Kin("made from", ("logs/a", "logs/b"), 3))
    'logs/a, logs/b and 3 more'
    """
    more = f" and {kin.more:,} more" if kin.more else ""
    return f"{', '.join(kin.places)}{more}"


def _places(given: Iterable[object]) -> tuple[str, ...]:
    """Return what names a message, as many as are shown."""
    named = [place for place in given if isinstance(place, str) and _is_place(place)]
    return tuple(named[:_MOST])


def _is_place(place: str) -> bool:
    queue, _, msg_id = place.partition("/")
    return names.is_queue_name(queue) and names.is_msg_id(msg_id)
