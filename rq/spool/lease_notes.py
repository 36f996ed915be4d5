"""The lines that tell of leases that are out: written, and read back.

None of them changes the state of a message. They are durable, as all lines, before what
they say is answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rq.spool.events import Events
from rq.spool.leases import Held
from rq.spool.record import Record
from rq.states import Note

IN_LINE = 1000  # leases that one line names


class LeaseNotes:
    """Writes down what becomes of the leases of one queue while they are out."""

    def __init__(self, events: Events, leases: Mapping[str, Held]) -> None:
        """`leases`: all that are out."""
        self._events = events
        self._leases = leases

    def renew(self, held: Sequence[Held], seconds: float) -> None:
        """Write down that leases go on for `seconds`."""
        for some in _some(held):
            line = self._events.note(Note.RENEW, leases=_tokens(some), seconds=seconds)
            for lease in some:
                lease.renewed = line["ts"] / 1e6
                lease.seconds = max(lease.seconds, seconds)

    def start(self, held: Sequence[Held]) -> None:
        """Write down that the holders of leases have confirmed them."""
        for some in _some(held):
            self._events.note(Note.START, leases=_tokens(some))
            for lease in some:
                lease.started = True

    def cancel(self, held: Held, by: str) -> None:
        """Write down who wants the holder of a lease to end it."""
        self._events.note(Note.CANCEL, leases=[held.token], by=by)
        held.cancelled_by = by

    def clock_stepped(self, step: float) -> None:
        """Write down that the wall clock was set, by `step` seconds: no lease is older
        for it."""
        self._events.note(Note.CLOCK, step=step)
        for lease in self._leases.values():
            lease.renewed += step


def _some(held: Sequence[Held]) -> Iterator[Sequence[Held]]:
    return (held[at : at + IN_LINE] for at in range(0, len(held), IN_LINE))


def _tokens(held: Sequence[Held]) -> list[str]:
    return [lease.token for lease in held]


@dataclass(slots=True)
class _News:
    """What is told of one lease."""

    seconds: float = 0.0
    renewed: float = 0.0  # epoch seconds; 0: it was not
    seq: int = 0  # of the line that says so
    started: bool = False
    cancelled_by: str | None = None


class LeaseNews:
    """What lines behind a checkpoint tell of leases that were out."""

    def __init__(self) -> None:
        self._by_token: dict[str, _News] = {}
        self._steps: list[tuple[int, float]] = []  # of the wall clock: seq, seconds

    def take(self, record: Record) -> None:
        """Take what a line tells of leases, if it does."""
        if record["ev"] == Note.CLOCK:
            self._steps.append((record["seq"], record["step"]))
        elif record["ev"] in (Note.RENEW, Note.START, Note.CANCEL):
            for token in record["leases"]:
                _take(self._by_token.setdefault(token, _News()), record)

    def tell(self, held: Held, seq: int) -> bool:
        """Bring a lease, as it was after event `seq`, up to all that was told since;
        return whether it was renewed."""
        news = self._by_token.get(held.token) or _News()
        held.started = held.started or news.started
        held.cancelled_by = held.cancelled_by or news.cancelled_by
        held.seconds = max(held.seconds, news.seconds)
        if news.renewed:
            held.renewed, seq = news.renewed, news.seq
        held.renewed += sum(step for at, step in self._steps if at > seq)
        return bool(news.renewed)


def _take(news: _News, record: Record) -> None:
    if record["ev"] == Note.START:
        news.started = True
    elif record["ev"] == Note.CANCEL:
        news.cancelled_by = news.cancelled_by or record["by"]
    else:
        news.seconds = max(news.seconds, record["seconds"])
        news.renewed, news.seq = record["ts"] / 1e6, record["seq"]
