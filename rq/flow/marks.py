"""How the messages of a flow stand, and so the flow as a whole; pure.

What owners say of single messages becomes a mark, one of few, which pages and the terminal
show by a shape and a colour. A flow has ended when each of its messages has; what has
failed may be retried, and then the rest goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq.words.states import State


class Mark(StrEnum):
    """How a message of a flow stands; the likeliest to need a person come first."""

    FAILED = "failed"
    CANCELLED = "cancelled"  # by a person, by itself or with the flow
    RUNS = "runs"
    READY = "ready"  # it waits for its turn, and for no other message
    WAITS = "waits"  # for messages before it
    HELD = "held"  # by a person
    UNSENT = "unsent"
    NOT_RUN = "not_run"  # what it waited for has decided against it
    DONE = "done"
    GONE = "gone"  # it has expired, or was deleted
    HIDDEN = "hidden"  # a message of a queue that the reader may not see


@dataclass(frozen=True, slots=True)
class Look:
    """How a mark is shown."""

    shape: str  # in a terminal
    words: str  # behind a number
    colour: str | None = None  # in a terminal


LOOKS: Mapping[Mark, Look] = {
    Mark.FAILED: Look("✗", "failed", "red"),
    Mark.CANCELLED: Look("⊗", "cancelled", "yellow"),
    Mark.RUNS: Look("▶", "running", "cyan"),
    Mark.READY: Look("■", "ready"),
    Mark.WAITS: Look("○", "waiting", "dim"),
    Mark.HELD: Look("‖", "held", "yellow"),
    Mark.UNSENT: Look("·", "not sent yet", "dim"),
    Mark.NOT_RUN: Look("⊘", "not run", "dim"),
    Mark.DONE: Look("✓", "done", "green"),
    Mark.GONE: Look("×", "gone", "dim"),
    Mark.HIDDEN: Look("?", "of other queues", "dim"),
}
# What may still change without a person.
OPEN = frozenset({Mark.RUNS, Mark.READY, Mark.WAITS, Mark.HELD, Mark.UNSENT})
# Of predecessors, by which one of rule `done` is decided.
DECIDE_DONE = frozenset({Mark.DONE, Mark.NOT_RUN})
# The mark of a flow that goes on by itself, in the order in which their ends are awaited.
GOES_ON = (Mark.RUNS, Mark.READY, Mark.WAITS, Mark.UNSENT)
# The mark of a flow is that of the first of these that a message of it has.
_OF_FLOW = (
    *((Mark.RUNS, mark) for mark in (Mark.RUNS, Mark.READY, Mark.UNSENT)),
    *(
        (mark, mark)
        for mark in (Mark.FAILED, Mark.CANCELLED, Mark.HELD, Mark.WAITS, Mark.NOT_RUN)
    ),
)
_OF_STATE: Mapping[str, Mark] = {
    State.PREP: Mark.READY,
    State.QUE: Mark.READY,
    State.RUN: Mark.RUNS,
    State.DONE: Mark.DONE,
    State.RELAYED: Mark.DONE,
    State.ERR: Mark.FAILED,
    State.DISMISSED: Mark.FAILED,
    "held": Mark.HELD,
    "after": Mark.WAITS,
    "not_run": Mark.NOT_RUN,
    "cancelled": Mark.CANCELLED,
}


def of_state(state: str | None) -> Mark:
    """Return the mark of a message by what its owner says of it; None: it is not sent."""
    return Mark.UNSENT if state is None else _OF_STATE.get(state, Mark.GONE)


def sums(marks: Iterable[Mark]) -> dict[Mark, int]:
    """Return how many there are of each mark, in the order of the marks."""
    counted = Counter(marks)
    return {mark: counted[mark] for mark in Mark if counted[mark]}


def of_flow(state: str, counted: Mapping[Mark, int]) -> Mark:
    """Return how a flow stands, by the state of what sends it and its messages.

    What sends it decides: unless that has ended well, none of the messages ever runs."""
    sender = of_state(state)
    if sender in (Mark.READY, Mark.RUNS, Mark.HELD):
        return Mark.UNSENT
    if sender is not Mark.DONE:
        return sender if sender in (Mark.FAILED, Mark.CANCELLED) else Mark.GONE
    at_best = Mark.GONE if set(counted) == {Mark.GONE} else Mark.DONE
    return next((mark for mark, of in _OF_FLOW if counted.get(of)), at_best)


def has_ended(counted: Mapping[Mark, int]) -> bool:
    """Return whether no message of a flow waits or runs."""
    return OPEN.isdisjoint(counted)


def messages(number: int, verb: str = "") -> str:
    """Return how many messages there are, and perhaps that these are something.

    >>> messages(1), messages(1200, "sent")
    ('1 message', '1,200 messages are sent')
    """
    noun, is_are = ("message", "is") if number == 1 else ("messages", "are")
    return f"{number:,} {noun}" + (f" {is_are} {verb}" if verb else "")


def in_words(counted: Mapping[Mark, int]) -> str:
    """Return sums as people read them.

    >>> in_words({Mark.FAILED: 1, Mark.DONE: 1200})
    '1,200 done, 1 failed'
    """
    order = (Mark.DONE, *(mark for mark in Mark if mark is not Mark.DONE))
    parts = [f"{counted[m]:,} {LOOKS[m].words}" for m in order if counted.get(m)]
    return ", ".join(parts) or "no messages"
