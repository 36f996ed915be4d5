"""What comes next in handing a message over: one table, pure.

Every step may be repeated: what is stored here and what the receiver remembers decide,
never what this process believes that it has done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What to do, or how it ends."""

    PREPARE = "prepare"
    ASK = "ask"
    ATTACH = "attach"
    COMMIT = "commit"
    RELAYED = "relayed"
    ERR = "err"
    DOUBT = "doubt"  # err, and a person has to say whether it arrived
    LATER = "later"


ENDS = frozenset({Step.RELAYED, Step.ERR, Step.DOUBT, Step.LATER})


class Heard(StrEnum):
    """What the receiver said, or did not."""

    PREP = "prep"  # it is there, and waits for attachments and commit
    WHOLE = "whole"  # all attachments are there
    COMMITTED = "committed"  # now, or some time before
    UNKNOWN = "unknown"  # there is no such message
    DAMAGED = "damaged"  # an attachment is not what was sent
    REFUSED = "refused"
    SILENT = "silent"  # no answer, or: not now


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a step."""

    heard: Heard
    text: str = ""
    remote: str | None = None  # full id of the message at the receiver
    knows_keys: bool = False  # the receiver knows keys
    reached: bool = True  # the host answered at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is durable here of the hand-over of a message."""

    remote: str | None = None  # full id of the message at the receiver
    knows_keys: bool = False  # preparing again answers the same id
    committing: bool = False  # a receiver without keys may have been told to commit
    forgotten: bool = False  # begun so long ago that the receiver's keys have gone
    again: int = 0  # how often a person has said that it did not arrive


def next_step(stored: Stored, answer: Answer | None) -> Step:
    """Return the next step; `answer` is None at the start of an attempt."""
    if answer is None:
        return Step.PREPARE if stored.remote is None else Step.ASK
    if answer.heard is Heard.UNKNOWN:
        # Without keys "unknown" is also said of what was accepted, ran, and was removed.
        doubt = stored.committing or stored.forgotten
        return Step.DOUBT if doubt else Step.PREPARE
    return _NEXT[answer.heard]


_NEXT = {
    Heard.PREP: Step.ATTACH,
    Heard.WHOLE: Step.COMMIT,
    Heard.COMMITTED: Step.RELAYED,
    Heard.DAMAGED: Step.ATTACH,
    Heard.REFUSED: Step.ERR,
    Heard.SILENT: Step.LATER,
}
