"""How many messages are in which state: one table for `rq ls --count` and the history."""

from __future__ import annotations

from collections.abc import Mapping

from rq.cli import term
from rq.cli.owner import Reader
from rq.states import State

STATES = tuple(str(s) for s in State if s not in (State.NOWHERE, State.GONE))

Counts = Mapping[str, Mapping[str, int]]


def table(counts: Counts) -> None:
    """Print the counts of queues; `-` where nothing can be said."""
    term.table(
        ("QUEUE", *(name.upper() for name in STATES)),
        [
            (queue, *(states.get(name, "-") for name in STATES))
            for queue, states in sorted(counts.items())
        ],
    )


def of_queue(reader: Reader, queue: str) -> dict[str, int]:
    """Return what the owner of a queue counts, or its folders."""
    counts = reader.counts(queue)
    return whole({**counts, State.DISMISSED: counts.get("errack", 0)})


def whole(states: Mapping[str, int], but: str = "") -> dict[str, int]:
    """Return counts with their zeros, all states `but` one."""
    return {name: states.get(name, 0) for name in STATES if name != but}
