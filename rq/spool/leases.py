"""Leases as the journal tells of them: those that are out, and those that have ended.

The lines that tell of leases that are out (`LeaseNotes` writes them, `LeaseNews` reads
them back) change no state of a message. They are durable, as all lines, before what they
say is answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rq.spool.record import Record, WriteNote
from rq.words.states import Event, Note, State

MOST_ENDED = 100_000
_KEPT = 600.0  # seconds that the end of a lease is remembered, at least
IN_LINE = 1000  # leases that one line names


@dataclass(slots=True, kw_only=True)
class Held:
    """A lease that is out."""

    attempt: int
    token: str  # its digest
    by: str
    seconds: float  # the most that the journal tells it was granted
    since: float  # epoch seconds: its claim
    renewed: float  # epoch seconds: its claim, or what the journal told of it last
    base: int = 0  # bytes of its message's log before it
    key: str | None = None  # exclusion key
    riders: tuple[str, ...] = ()
    left: float = 0.0  # seconds that it has at a start; saved by a clean stop
    started: bool = False  # its holder has said that it has the token
    cancelled_by: str | None = None  # who wants its holder to end it
    # How often in a row its message was given back before: not taken, and released.
    untaken: int = 0
    released: int = 0
    lasts: float | None = None  # seconds from its beginning, whatever is renewed

    def to_json(self) -> list[object]:
        """Return it as a checkpoint has it."""
        return [
            self.attempt,
            self.token,
            self.by,
            self.seconds,
            self.since,
            self.renewed,
            self.base,
            self.key,
            list(self.riders),
            self.left,
            self.started,
            self.cancelled_by,
            self.untaken,
            self.released,
            self.lasts,
        ]

    def bounded(self, now: float) -> float:
        """Return how many seconds it has after a crash: all that it was granted, but not
        past twice as many from what the journal told last."""
        return min(self.seconds, max(0.0, self.renewed + 2 * self.seconds - now))


def held_from(values: Sequence[object]) -> Held:
    """Return a lease as a checkpoint has it; ValueError if that is none."""
    match values:
        case [
            int(attempt),
            str(token),
            str(by),
            int() | float() as seconds,
            int() | float() as since,
            int() | float() as renewed,
            int(base),
            str() | None as key,
            list(riders),
            int() | float() as left,
            bool(started),
            str() | None as cancelled_by,
            int(untaken),
            int(released),
            *lasts,  # of a newer checkpoint one
        ]:
            return Held(
                attempt=attempt,
                token=token,
                by=by,
                seconds=seconds,
                since=since,
                renewed=renewed,
                base=base,
                key=key,
                riders=tuple(str(rider) for rider in riders),
                left=left,
                started=started,
                cancelled_by=cancelled_by,
                untaken=untaken,
                released=released,
                lasts=next((s for s in lasts if isinstance(s, int | float)), None),
            )
    raise ValueError("not a lease")


def held_in(record: Record) -> Held | None:
    """Return the lease that a claim begins; None: it begins none."""
    lease = record.get("lease")
    if lease is None or record["ev"] != Event.CLAIM:
        return None
    when = record["ts"] / 1e6
    return Held(
        attempt=record["attempt"],
        token=lease["hash"],
        by=lease["by"],
        seconds=lease["seconds"],
        since=when,
        renewed=when,
        base=lease.get("base", 0),
        key=lease.get("key"),
        riders=tuple(lease.get("riders", ())),
        untaken=lease.get("untaken", 0),
        released=lease.get("released", 0),
        lasts=lease.get("lasts"),
    )


class Ended(NamedTuple):
    """How a lease has ended."""

    msg_id: str
    event: str
    at: float  # epoch seconds
    by: str  # who held it
    word: str  # digest of what its holder has said; "": RQ has ended it
    kept: float  # seconds


class EndedLeases:
    """How leases have ended, by the digest of their token, as long as its holder may
    ask."""

    def __init__(self, rows: Iterable[Sequence[object]] = ()) -> None:
        """`rows` as `rows` gives them."""
        self._by_token: dict[str, Ended] = {}
        for token, *values in rows:
            self._by_token[str(token)] = Ended(*values)  # type: ignore[arg-type]  # ours

    def __len__(self) -> int:
        return len(self._by_token)

    def of(self, token: str) -> Ended | None:
        """Return how a lease has ended; None: it is not remembered."""
        return self._by_token.get(token)

    def take(self, record: Record) -> None:
        """Remember what a line tells of the end of a lease, if it does."""
        lease = record.get("lease")
        if lease is None or record["state"] == State.RUN:
            return
        now = record["ts"] / 1e6
        kept = max(_KEPT, 2 * lease.get("seconds", 0.0))
        word = lease.get("word", "")
        ended = Ended(record["msg"], record["ev"], now, lease["by"], word, kept)
        self._by_token[lease["hash"]] = ended
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Forget the oldest when it is old, or when there are too many; each end that
        comes makes room for two."""
        for _ in range(2):
            oldest = next(iter(self._by_token))
            ended = self._by_token[oldest]
            if now - ended.at <= ended.kept and len(self._by_token) <= MOST_ENDED:
                return
            del self._by_token[oldest]

    def rows(self, at_once: int) -> Iterator[list[list[object]]]:
        """Give rows for the index, so many at once; ends may come and go meanwhile."""
        tokens = list(self._by_token)
        for at in range(0, len(tokens), at_once):
            yield [
                [token, *self._by_token[token]]
                for token in tokens[at : at + at_once]
                if token in self._by_token
            ]


# ---- the lines that tell of leases that are out


class LeaseNotes:
    """Writes down what becomes of the leases of one queue while they are out."""

    def __init__(self, note: WriteNote, leases: Mapping[str, Held]) -> None:
        """`leases`: all that are out."""
        self._note = note
        self._leases = leases

    def renew(self, held: Sequence[Held], seconds: float) -> None:
        """Write down that leases go on for `seconds`."""
        for some in _some(held):
            line = self._note(Note.RENEW, leases=_tokens(some), seconds=seconds)
            for lease in some:
                lease.renewed = line["ts"] / 1e6
                lease.seconds = max(lease.seconds, seconds)

    def start(self, held: Sequence[Held]) -> None:
        """Write down that the holders of leases have confirmed them."""
        for some in _some(held):
            self._note(Note.START, leases=_tokens(some))
            for lease in some:
                lease.started = True

    def cancel(self, held: Held, by: str) -> None:
        """Write down who wants the holder of a lease to end it."""
        self._note(Note.CANCEL, leases=[held.token], by=by)
        held.cancelled_by = by

    def clock_stepped(self, step: float) -> None:
        """Write down that the wall clock was set, by `step` seconds: no lease is older
        for it."""
        self._note(Note.CLOCK, step=step)
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
                _take_news(self._by_token.setdefault(token, _News()), record)

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


def _take_news(news: _News, record: Record) -> None:
    if record["ev"] == Note.START:
        news.started = True
    elif record["ev"] == Note.CANCEL:
        news.cancelled_by = news.cancelled_by or record["by"]
    else:
        news.seconds = max(news.seconds, record["seconds"])
        news.renewed, news.seq = record["ts"] / 1e6, record["seq"]
