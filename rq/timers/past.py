"""What a timer has done, which outlives a restart; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rq.timers.rule import Timer

MOST_FIRES = 20  # that are remembered


@dataclass(frozen=True, slots=True)
class Fire:
    """One fire that was, and what became of its message."""

    nominal: float  # epoch seconds; what names it
    tried: float  # epoch seconds
    said: str  # sent, run, or why there is no message
    msg: str = ""  # the URL of its message
    outcome: str = ""  # the state in which the message was last seen


@dataclass(frozen=True, slots=True)
class Past:
    """What a timer has done; kept over restarts."""

    last: float | None = None  # epoch seconds of the fire that the next counts from
    result: str = ""  # of the last attempt: sent ID, skipped, or an error
    error: str = ""
    failures: int = 0  # in a row; a failed fire is tried again
    why: str = ""  # the last of them, in a word of `missed.Why`
    tried: float = 0.0  # epoch seconds
    # Of the fire that was begun and of which it is not known whether it was sent: its
    # time, which names its message.
    begun: float | None = None
    # Epoch seconds up to which all fires are over, when that is later than `last`: those
    # of before a rule was known, or while it was paused, are not made up for.
    over: float | None = None
    rule: str = ""  # of the timer, for which `over` was said
    paused: float | None = None  # epoch seconds since when
    # Epoch seconds since when a success is expected; None: it is not.
    expected: float | None = None
    is_told: bool = False  # that none came; until one does
    fires: tuple[Fire, ...] = ()  # the newest last

    @property
    def base(self) -> float | None:
        """What the next fire comes after; None: it is the first, and due at once."""
        both = [moment for moment in (self.last, self.over) if moment is not None]
        return max(both, default=None)


def with_rule(past: Past, timer: Timer, now: float) -> Past:
    """Return the past of a timer as its file is now: a rule that is new fires from now
    on, one that is the same goes on. So it is with what is expected."""
    if bool(timer.within) != (past.expected is not None):
        past = replace(past, expected=now if timer.within else None, is_told=False)
    if past.rule == timer.rule:
        return past
    return replace(past, rule=timer.rule, over=now if timer.rule else None)


def not_ahead(past: Past, now: float) -> Past:
    """Return what a timer has done as a clock shows it that was put back since: what it
    did lies `now` and not ahead, or it would not be due before the clock is there again.
    """
    last = past.last if past.last is None else min(past.last, now)
    over = past.over if past.over is None else min(past.over, now)
    tried = min(past.tried, now)
    unchanged = (last, over, tried) == (past.last, past.over, past.tried)
    return past if unchanged else replace(past, last=last, over=over, tried=tried)


def noted(fires: tuple[Fire, ...], fire: Fire) -> tuple[Fire, ...]:
    """Return the fires with one more, or with one that is told again."""
    others = [
        each for each in fires if (each.nominal, each.said) != (fire.nominal, fire.said)
    ]
    return (*others, fire)[-MOST_FIRES:]
