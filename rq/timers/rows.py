"""The rows of `config/timers.fires`: what became of each fire; pure.

A line of the file holds its number `n`, the timer, and one of these:

- `fire`: a message was sent, by the clock or by a person's word. Its row has the number of
  this line.
- `end`: what became of the message of row `of`, as its queue told it. The last that is
  said of a row holds: a message in err may be tried again, and end well.
- `missed`: a span of fires for which no message was sent. A span that goes on is written
  whole again, with the number of its row in `of`.
- `removed`: the timer was; one of its name that comes later has nothing of its rows.

All values are absolute, so a line that is read twice changes nothing. `rows_of` folds
lines to rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from rq.timers.missed import Span, Why
from rq.words.states import State

RUN = "run"  # a fire by a person's word
SENT = "sent"  # by the clock
SUCCESS = frozenset({State.DONE, State.RELAYED})
_LASTING = SUCCESS | {State.GONE}
Line: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a message."""

    state: str = ""  # in which it was last seen; "": not yet
    cause: str = ""
    text: str = ""
    ended: float | None = None  # epoch seconds
    removed: bool = False  # since then
    acknowledged: bool = False  # in its queue, by a person

    @property
    def is_open(self) -> bool:
        """Whether it may still become something else."""
        return not self.removed and self.state not in _LASTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A fire that has a message."""

    number: int
    newest: int  # the number of the last line about it
    timer: str
    nominal: float  # epoch seconds; what names it
    planned: float  # epoch seconds at which it should have been
    tried: float  # epoch seconds
    said: str  # SENT or RUN
    msg: str  # the URL of its message
    outcome: Outcome

    @property
    def is_bad(self) -> bool:
        """Whether its message has failed."""
        return self.outcome.state == State.ERR


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A span of fires that have none."""

    number: int
    newest: int
    timer: str
    span: Span
    why: Why
    text: str  # the same in a sentence, if more is known
    at: float  # epoch seconds at which it was noted

    def with_more(self, span: Span, at: float) -> Missed:
        """Return the row with the fires that follow it."""
        both = Span(
            self.span.first,
            span.to,
            self.span.count + span.count,
            self.span.more or span.more,
        )
        return replace(self, span=both, at=at)


Row: TypeAlias = Fired | Missed


def to_line(row: Row) -> Line:
    """Return the line that says a row is there, or how far it goes now."""
    if isinstance(row, Fired):
        return {
            "n": row.number,
            "timer": row.timer,
            "what": "fire",
            "nominal": row.nominal,
            "planned": row.planned,
            "tried": row.tried,
            "said": row.said,
            "msg": row.msg,
        }
    of = {} if row.newest == row.number else {"of": row.number}
    return {
        "n": row.newest,
        "timer": row.timer,
        "what": "missed",
        **of,
        "from": row.span.first,
        "to": row.span.to,
        "count": row.span.count,
        "more": row.span.more,
        "why": row.why,
        "text": row.text,
        "at": row.at,
    }


def end_line(row: Fired) -> Line:
    """Return the line that says what became of its message."""
    outcome = row.outcome
    return {
        "n": row.newest,
        "timer": row.timer,
        "what": "end",
        "of": row.number,
        "state": outcome.state,
        "cause": outcome.cause,
        "text": outcome.text,
        "ended": outcome.ended,
        "removed": outcome.removed,
        "acknowledged": outcome.acknowledged,
    }


def apply(rows: dict[int, Row], line: Mapping[str, Any]) -> None:
    """Bring rows, by their number, up to what a line says."""
    if line["what"] == "fire":
        rows[line["n"]] = _fired(line)
    elif line["what"] == "missed":
        rows[number_of(line)] = _missed(line)
    elif line["what"] == "removed":
        rows.clear()
    elif isinstance(row := rows.get(line["of"]), Fired):
        rows[row.number] = replace(row, newest=line["n"], outcome=_outcome(line))


def rows_of(lines: Iterable[Mapping[str, Any]], timer: str) -> list[Row]:
    """Return the rows of a timer, the oldest first."""
    rows: dict[int, Row] = {}
    for line in lines:
        if line["timer"] == timer:
            apply(rows, line)
    return list(rows.values())


def number_of(line: Mapping[str, Any]) -> int:
    """Return the number of the row that a line is about."""
    return int(line.get("of", line["n"]))


def _fired(line: Mapping[str, Any]) -> Fired:
    return Fired(
        number=line["n"],
        newest=line["n"],
        timer=line["timer"],
        nominal=line["nominal"],
        planned=line["planned"],
        tried=line["tried"],
        said=line["said"],
        msg=line["msg"],
        outcome=Outcome(),
    )


def _missed(line: Mapping[str, Any]) -> Missed:
    return Missed(
        number=number_of(line),
        newest=line["n"],
        timer=line["timer"],
        span=Span(line["from"], line["to"], line["count"], line["more"]),
        why=Why(line["why"]),
        text=line["text"],
        at=line["at"],
    )


def _outcome(line: Mapping[str, Any]) -> Outcome:
    return Outcome(
        state=line["state"],
        cause=line["cause"],
        text=line["text"],
        ended=line["ended"],
        removed=line["removed"],
        acknowledged=line.get("acknowledged", False),
    )
