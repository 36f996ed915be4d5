"""Which queues the overview lists, and in which order; pure.

Each tile of the overview counts something and leads to the queues in which it was counted:
`?show=WORD`. The word, the order and the part of a name that is looked for stand in the
address, so that a bookmark keeps them. Without an order the worst comes first; what ties is
listed as it came, so that rows do not change places while a person reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from rq.web.pages.facts import QueueRow

Troubled: TypeAlias = Container[str]  # the queues that have a trouble
_Key: TypeAlias = Callable[[QueueRow], str | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Queues that have something in common."""

    label: str
    none: str  # said when no queue has it
    has: Callable[[QueueRow, Troubled], bool]


def _counts(state: str) -> Callable[[QueueRow, Troubled], bool]:
    return lambda row, _: bool(row["counts"].get(state))


SHOWS: Final[Mapping[str, Show]] = MappingProxyType(
    {
        "trouble": Show(
            label="in trouble",
            none="No queue is in trouble.",
            has=lambda row, troubled: row["name"] in troubled,
        ),
        "failed": Show(
            label="with failures",
            none="No queue has a message that failed.",
            has=_counts("err"),
        ),
        "overdue": Show(
            label="overdue",
            none="No queue has a message that is overdue.",
            has=lambda row, _: bool(row["oldest_due_age"]),
        ),
        "waiting": Show(
            label="with messages that wait",
            none="No message waits.",
            has=_counts("que"),
        ),
        "running": Show(
            label="at work",
            none="No queue is at work.",
            has=_counts("run"),
        ),
        "closed": Show(
            label="paused or down",
            none="No queue is paused or down.",
            has=lambda row, _: row["admin"] != "UP",
        ),
    }
)
_ORDERS: Final[Mapping[str, _Key]] = MappingProxyType(
    {
        "name": lambda row: row["name"].lower(),
        "waiting": lambda row: -row["counts"].get("que", 0),
        "running": lambda row: -row["counts"].get("run", 0),
        "errors": lambda row: -row["counts"].get("err", 0),
        "done": lambda row: -row["counts"].get("done", 0),
        "oldest": lambda row: -(row["oldest_due_age"] or 0),
    }
)
SORTS: Final = tuple(_ORDERS)


def chosen(
    rows: Sequence[QueueRow], part: str, show: str, troubled: Troubled
) -> list[QueueRow]:
    """Return the queues whose names hold a part, and that have what is to be shown."""
    has = SHOWS[show].has if show in SHOWS else lambda *_: True
    wanted = part.lower()
    return [row for row in rows if wanted in row["name"].lower() and has(row, troubled)]


def ordered(
    rows: Sequence[QueueRow], order: str, troubled: Troubled = ()
) -> list[QueueRow]:
    """Return the queues in an order; no order is the worst first."""
    key = _ORDERS.get(order)
    if key is not None:
        return sorted(rows, key=key)
    return sorted(rows, key=lambda row: _worst(row, troubled))


def _worst(row: QueueRow, troubled: Troubled) -> tuple[bool, int]:
    return row["name"] not in troubled, -row["counts"].get("err", 0)
