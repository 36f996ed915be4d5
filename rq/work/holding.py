"""A lease as its holder knows it: an agent, a stream of Spark, the broker for its clients.

Seconds travel, never times. They are counted from when the request was sent that granted
them, so a lease ends here no later than at the queue. It is renewed when a third has
passed; at two thirds without an answer the work is ended, so that it is over when the
queue may give the message to another worker.

A word about a lease (start, renew, finish, release) has one of three results:

- `ok`: it was taken. The lease goes on for `seconds`, if there are any; with `cancel` its
  holder should end the work and give the message back.
- `is_lost`: the token is no longer that of the message's attempt. Another worker may have
  the message: nothing more is said about it, and what was done for it is dropped.
- neither: the word was not taken, `kind` and `text` say why. The lease is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rq.errors import BadInput
from rq.kinds import Kind, kind_of
from rq.rpc import wire
from rq.words.nesting import Json

LONGEST = 86400  # seconds of a lease
_TEXT = 2000  # characters of a sentence
_LARGEST = 2**62  # bytes
_LOST = frozenset({Kind.LEASE_OVER, Kind.LEASE_FORGOTTEN, Kind.NO_SUCH_MESSAGE})
_RENEW, _STOP = 1 / 3, 2 / 3  # shares of a lease


def now() -> float:
    """Return the seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Term:
    """A lease's time; all in seconds, `sent` as `now` gives them.

    >>> term = Term(100.0, 60)
    >>> term.renew_at, term.stop_at, term.ends_at
    (120.0, 140.0, 160.0)
    """

    sent: float  # when the request was sent that granted it
    seconds: float

    @property
    def renew_at(self) -> float:
        """When to ask for more."""
        return self.sent + self.seconds * _RENEW

    @property
    def stop_at(self) -> float:
        """When to end the work, if the queue has granted no more."""
        return self.sent + self.seconds * _STOP

    @property
    def ends_at(self) -> float:
        """When the queue may give the message to another worker."""
        return self.sent + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a word about one token."""

    ok: bool
    text: str = ""  # why not
    kind: Kind | None = None  # of that
    is_lost: bool = False
    cancel: str = ""  # why its work shall end
    state: str = ""  # where its message is now
    seconds: float = 0.0  # that were granted
    sent: float = 0.0  # when the word was sent
    have: int | None = None  # bytes of the log, or of a file, that have arrived

    @property
    def ends_at(self) -> float:
        """When the lease ends, by the clock of `sent`."""
        return Term(self.sent, self.seconds).ends_at


def result(given: Mapping[str, Json], sent: float) -> Result:
    """Return what an entry of an answer says; BadInput. `sent`: when the word was."""
    seconds, have = given.get("seconds"), given.get("have")
    word = given.get("kind")
    kind = kind_of(word) if isinstance(word, str) else None
    return Result(
        ok=given.get("ok") is True,
        text=text(given, "text") or text(given, "detail"),
        kind=kind,
        is_lost=kind in _LOST,
        cancel=text(given, "cancel"),
        state=text(given, "state"),
        seconds=0.0 if seconds is None else seconds_of(seconds),
        sent=sent,
        have=have if isinstance(have, int) and 0 <= have <= _LARGEST else None,
    )


def check_taken(results: Sequence[Result]) -> None:
    """Raise the first failure of a word about a lease that is not lost."""
    for said in results:
        if not (said.ok or said.is_lost):
            raise wire.error_of(said.kind or Kind.REFUSED, said.text)


def text(given: Mapping[str, Json], name: str) -> str:
    """Return a sentence of an answer; "" where there is none."""
    value = given.get(name)
    return value[:_TEXT] if isinstance(value, str) else ""


def seconds_of(value: Json) -> float:
    """Return how long a lease lasts; BadInput."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 < float(value) <= LONGEST:  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    raise BadInput("a lease lasts for no number of seconds")
