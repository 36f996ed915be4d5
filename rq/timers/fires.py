"""`config/timers.fires`: each fire, what became of it, and those that were missed.

What is true at all times:

- Numbers of lines grow by one and are never given twice, also over restarts. A line is
  durable before anything is built on it: a fire's line is written before the state of its
  timer goes on (`Timers.save`). So a crash between the two finds the fire here, sends its
  message again under the same key, gets the same message, and writes no second line:
  `fired` knows a fire by its time.
- A missed span is known by where it ends (`noted_to`): what a crash lets be counted again
  begins behind it.
- A write that fails leaves its lines waiting. The file is opened again, and what of them
  is on disk already is not written twice.
- The file is never the truth about what is to be sent: without it timers fire as before.

Kept are 13 months, and of each timer the newest 10,000 rows at most. In memory there are
fewer: the newest hundred of each timer, those whose end is not known, the last success.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from rq.config import appended
from rq.config.appended import Appended
from rq.errors import CannotRead
from rq.layout import Root
from rq.timers import rows
from rq.timers.missed import Span, Why
from rq.timers.past import Past
from rq.timers.rows import RUN, SENT, SUCCESS, Fired, Line, Missed, Outcome, Row

KEPT_DAYS = 396.0  # 13 months
MOST_ROWS = 10_000  # of a timer, in the file
_NAME = "timers.fires 1"
_DAY = 86400.0
_IN_MEMORY = 100  # rows of a timer whose end is known
_MOST_OPEN = 1000  # rows of a timer in memory, whatever is known of them
_LARGE = 4 * 2**20  # bytes that are never too many

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OfTimer:
    """What memory holds of one timer."""

    rows: dict[int, Row] = field(default_factory=dict)  # by number, the oldest first
    success: Fired | None = None  # the last
    missed: int = 0  # fires, since the process began

    def take(self, line: Mapping[str, Any]) -> None:
        """Bring the rows up to what a line says."""
        rows.apply(self.rows, line)
        if not self.rows:
            self.success = None
        row = self.rows.get(rows.number_of(line))
        if isinstance(row, Fired) and row.outcome.state in SUCCESS:
            before = self.success or row
            self.success = max(before, row, key=lambda success: success.number)
        self._forget()

    def _forget(self) -> None:
        while len(self.rows) > _IN_MEMORY:
            ended = (n for n, row in self.rows.items() if not _waits(row))
            number = next(ended, None)
            if number is None and len(self.rows) <= _MOST_OPEN:
                return
            del self.rows[next(iter(self.rows)) if number is None else number]

    def fire_of(self, nominal: float, said: str) -> Fired | None:
        """Return the fire of a time, if it was noted before."""
        for row in reversed(self.rows.values()):
            if isinstance(row, Fired) and (row.nominal, row.said) == (nominal, said):
                return row
        return None

    def noted_to(self) -> float:
        """Return up to when missed fires are noted, in epoch seconds."""
        spans = (row.span.to for row in self.rows.values() if isinstance(row, Missed))
        return max(spans, default=0.0)

    def last_fire(self) -> Fired | None:
        """Return the last fire of the clock or by hand."""
        fires = (r for r in reversed(self.rows.values()) if isinstance(r, Fired))
        return next(fires, None)


def _waits(row: Row) -> bool:
    """Whether the end of a row's message is still to come; err may be for long."""
    return isinstance(row, Fired) and row.outcome.is_open and row.outcome.state != "err"


class Fires:
    """Writes the rows, and holds the newest."""

    def __init__(self, root: Root, pasts: Mapping[str, Past]) -> None:
        """Read what is there. CannotRead: it would be written over. `pasts` are taken
        where there is no file yet."""
        self._path = root.timers_fires
        self._file: Appended | None = None
        self._waiting: list[Line] = []  # numbered, not yet on disk
        self._timers: dict[str, OfTimer] = {}
        self._next = 1
        self._limit = 0  # bytes from which on it is thinned out
        self._thinned = 0.0  # epoch seconds
        is_new = not self._path.exists()
        for line in read(self._path):
            self._next = line["n"] + 1
            self.of(line["timer"]).take(line)
        if is_new:
            self._import(pasts)

    def of(self, timer: str) -> OfTimer:
        """Return what is known of a timer."""
        return self._timers.setdefault(timer, OfTimer())

    def missed_between(self, since: float, until: float) -> list[Missed]:
        """Return the spans of missed fires of all timers, of a span of time."""
        held = (row for timer in self._timers.values() for row in timer.rows.values())
        return [
            row
            for row in held
            if isinstance(row, Missed)
            and row.span.to >= since
            and row.span.first <= until
        ]

    def open(self) -> list[Fired]:
        """Return the fires whose end is not known, or may change."""
        return [row for timer in self._timers for row in self.open_of(timer)]

    def open_of(self, timer: str) -> list[Fired]:
        """Return those of one timer."""
        held = self.of(timer).rows.values()
        return [r for r in held if isinstance(r, Fired) and r.outcome.is_open]

    @property
    def newest(self) -> int:
        """The number of the last line."""
        return self._next - 1

    # ---- what has happened

    def fired(
        self,
        timer: str,
        nominal: float,
        planned: float,
        tried: float,
        said: str,
        msg: str,
    ) -> None:
        """Note a message that was sent; once for each time of a timer."""
        if self.of(timer).fire_of(nominal, said):
            return
        row = Fired(
            number=self._next,
            newest=self._next,
            timer=timer,
            nominal=nominal,
            planned=planned,
            tried=tried,
            said=said,
            msg=msg,
            outcome=Outcome(),
        )
        self._add(rows.to_line(row))

    def missed(
        self, timer: str, span: Span | None, why: tuple[Why, str], at: float
    ) -> None:
        """Note fires that have no message: with those before, if they go on."""
        if span is None:
            return
        held = self.of(timer)
        last = next(reversed(held.rows.values()), None)
        reason, text = why
        if isinstance(last, Missed) and last.why is reason:
            more = last.with_more(span, at)
            row = replace(more, newest=self._next, text=text or last.text)
        else:
            row = Missed(
                number=self._next,
                newest=self._next,
                timer=timer,
                span=span,
                why=reason,
                text=text,
                at=at,
            )
        held.missed += span.count
        self._add(rows.to_line(row))

    def ended(self, row: Fired, outcome: Outcome) -> None:
        """Note what became of the message of a fire, unless that is known."""
        latest = self.of(row.timer).rows.get(row.number)
        if isinstance(latest, Fired) and outcome != latest.outcome:
            ended = replace(latest, newest=self._next, outcome=outcome)
            self._add(rows.end_line(ended))

    def removed(self, timer: str) -> None:
        """Note that a timer is there no more."""
        if self.of(timer).rows:
            self._add({"n": self._next, "timer": timer, "what": "removed"})
        del self._timers[timer]

    def _add(self, line: Line) -> None:
        self._waiting.append(line)
        self._next += 1
        self.of(line["timer"]).take(line)

    def _import(self, pasts: Mapping[str, Past]) -> None:
        """Take over what an RQ without this file has kept."""
        for name, past in pasts.items():
            for fire in past.fires:
                if fire.msg:
                    said = RUN if fire.said == RUN else SENT
                    self.fired(
                        name, fire.nominal, fire.nominal, fire.tried, said, fire.msg
                    )
                    row = self.of(name).last_fire()
                    if row and fire.outcome:
                        self.ended(row, Outcome(state=fire.outcome))

    # ---- on disk

    def flush(self, now: float) -> None:
        """Write what waits; durable when it returns. OSError: it still waits."""
        if self._file is None:
            self._open(now)
        if self._waiting and self._file is not None:
            file, self._file = self._file, None  # an error leaves none
            file.append(self._waiting)
            self._file, self._waiting = file, []
            if file.size > self._limit or now - self._thinned > _DAY:
                self._thin(now)

    def _open(self, now: float) -> None:
        if not self._path.exists():
            self._file = Appended(self._path, _NAME)
            self._limit, self._thinned = _LARGE, now
            return
        end, newest = _end_of(self._path)
        self._waiting = [line for line in self._waiting if line["n"] > newest]
        self._file = Appended.going_on(self._path, end)
        self._limit = self._limit or max(_LARGE, 2 * end)

    def _thin(self, now: float) -> None:
        """Leave out what is too old, or too much of a timer."""
        self._thinned = now
        oldest = _too_old(self._path, now - KEPT_DAYS * _DAY)
        spare = {held.success.number for held in self._timers.values() if held.success}
        kept = [
            line
            for line in read(self._path)
            if rows.number_of(line) >= oldest.get(line["timer"], 0)
            or rows.number_of(line) in spare
        ]
        if self._file is not None:
            self._file.close()
            self._file = None
        size = appended.write(self._path, _NAME, kept)
        self._file = Appended.going_on(self._path, size)
        self._limit = max(_LARGE, 2 * size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read(path: Path) -> Iterator[Line]:
    """Give the lines of a file of fires, in order; damaged ones are left out, and told in
    the log. CannotRead when it cannot be read now."""
    damaged = 0
    try:
        for value, _ in appended.scan(path):
            if isinstance(value, dict):
                yield cast(Line, value)
            damaged += value is None
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotRead(f"{path} cannot be read: {error}") from None
    if damaged:
        log.warning("%s: damaged lines are left out: %s", path, damaged)


def _end_of(path: Path) -> tuple[int, int]:
    """Return where the last whole line of a file ends, and the number of that line."""
    end = newest = 0
    for value, after in appended.scan(path):
        if value is not None:
            end = after
        if isinstance(value, dict):
            newest = value["n"]
    return end, newest


def _too_old(path: Path, oldest: float) -> dict[str, int]:
    """Return the number of the first row that is kept of each timer."""
    moments: dict[str, dict[int, float]] = {}
    for line in read(path):
        of_timer = moments.setdefault(line["timer"], {})
        number = rows.number_of(line)
        of_timer[number] = max(_at(line), of_timer.get(number, 0.0))
    return {timer: _first(of_timer, oldest) for timer, of_timer in moments.items()}


def _at(line: Line) -> float:
    return float(line.get("tried") or line.get("at") or 0.0)


def _first(moments: Mapping[int, float], oldest: float) -> int:
    newest = list(moments.items())[-MOST_ROWS:]
    return next((n for n, at in newest if at >= oldest), newest[-1][0] + 1)
